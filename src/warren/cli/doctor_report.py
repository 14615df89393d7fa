"""What `warren doctor` reports: the host, then each layer of isolation, one line each."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from warren.cli.terminal.tables import print_table

if TYPE_CHECKING:
    from warren.bootstrap.local_engine import Examined, Host, Layer

_CONTAINERS = {"wsl2": "WSL2", "docker": "Docker", "podman": "Podman", "kubernetes": "Kubernetes", "lxc": "LXC"}


@dataclass(frozen=True, slots=True)
class Report:
    """A host as it was found."""

    found: Examined
    unwritable: str = ""
    """The data folder, where nothing can be kept in it."""

    def as_json(self) -> dict[str, Any]:
        """Say the same for programs."""
        return {
            "ok": not self.found.missing and not self.unwritable,
            "unwritable": self.unwritable,
            "host": dataclasses.asdict(self.found.host),
            "place": self.found.place,
            "layers": [
                dataclasses.asdict(layer) | {"optional": layer.name in self.found.optional}
                for layer in self.found.layers
            ],
        }

    def print(self) -> None:
        """Print it for people, on a terminal and in a pipe."""
        print_table(None, ("", ""), describe_host(self.found.host, self.found.place))
        print()
        rows = [(layer.name, self._word(layer), layer.detail) for layer in self.found.layers]
        print_table(None, ("layer", "holds", "detail"), rows)
        print()
        for fix, names in self._group_fixes().items():
            optional = "Optional, to" if self.found.optional.issuperset(names) else "To"
            print(f"{optional} fix {', '.join(names)}: {fix}")
        if self.found.missing:
            needed = ", ".join(layer.name for layer in self.found.missing)
            print(f"Sandboxes are refused here: {needed} cannot be applied.")
        elif self.unwritable:
            print(f"The data folder {self.unwritable} cannot be written: choose another with WARREN_DATA_DIR.")
        else:
            print("Sandboxes can be made here.")

    def _group_fixes(self) -> dict[str, list[str]]:
        groups: dict[str, list[str]] = {}
        for layer in self.found.layers:
            if not layer.holds and layer.fix:
                groups.setdefault(layer.fix, []).append(layer.name)
        return groups

    def _word(self, layer: Layer) -> str:
        if layer.holds:
            return "\x1b[32myes\x1b[0m"
        return "\x1b[33mno, optional\x1b[0m" if layer.name in self.found.optional else "\x1b[31mno\x1b[0m"


def describe_host(host: Host, place: str) -> list[tuple[str, str]]:
    """Return the facts of a host that decide what holds there, a row each."""
    rows = [("host", f"{host.system}, Linux {host.kernel}, {host.machine}")]
    if host.container:
        rows.append(("container", _CONTAINERS.get(host.container, host.container)))
    rows.append(("init", f"systemd {host.init_version or ''}".strip() if host.has_systemd else host.init))
    rows.append(("cgroups", place or {"none": "not mounted"}.get(host.cgroups, host.cgroups)))
    if host.is_root:
        rows.append(("user", "root"))
    else:
        manager = "with a user manager" if host.user_manager else "without a user manager of systemd"
        rows.append(("user", f"uid {host.uid}, {manager}"))
    if host.userns_restricted:
        profile = host.profile or "not installed"
        rows.append(("AppArmor", f"takes user namespaces from users; profile warren: {profile}"))
    if host.selinux != "off":
        rows.append(("SELinux", host.selinux))
    return rows


def print_gpus(gpus: dict[str, Any]) -> None:
    """Print a line for each GPU, and for each CDI spec that cannot be used."""
    for gpu in gpus["devices"]:
        what = f"{gpu['id']}{' (' + gpu['model'] + ')' if gpu['model'] else ''}"
        print(f"GPU {what} can be used." if gpu["usable"] else f"GPU {what} cannot be used: {gpu['why']}")
    if not gpus["devices"]:
        print("No GPU was found.")
    for problem in gpus["problems"]:
        print(f"{problem[0].upper()}{problem[1:]}")
