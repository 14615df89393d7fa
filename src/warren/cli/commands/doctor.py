"""`warren doctor` says what holds on this host, and `warren stop-engine` ends what the embedded engine keeps warm."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import shutil
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from warren.cli.terminal.tables import print_json, print_table
from warren.domain.errors import ConfigError

if TYPE_CHECKING:
    from warren.bootstrap.local_engine import Examined, Host, Layer
    from warren.settings import Settings

EXAMPLES = """\b
Examples:
  warren doctor
  warren doctor --json | jq .layers
  warren doctor --fix              # shows what it would change, and asks
  warren doctor --fix --yes        # in a script
"""

STOP_EXAMPLES = """\b
Examples:
  warren stop-engine
  warren stop-engine --sandboxes    # and every sandbox, once the service has ended
"""


_CONTAINERS = {"wsl2": "WSL2", "docker": "Docker", "podman": "Podman", "kubernetes": "Kubernetes", "lxc": "LXC"}


def doctor(
    *,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    fix: Annotated[
        bool,
        typer.Option(
            "--fix", help="Show the commands that enable missing layers, ask, and run them as root with sudo."
        ),
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="With --fix: do not ask.")] = False,
) -> int:
    """Check every layer of isolation on this host: whether it holds, why not, and the command to fix it.

    Prints the host, its init and its control groups, then the layers, missing system packages of images, and usable
    GPUs. The exit code is 1 if a layer is missing that the settings do not make optional.
    """
    from warren.bootstrap.local_engine import find_gpus
    from warren.settings import Settings

    settings = Settings.load()
    report = _examine(settings)
    if fix:
        if not _repair(report, yes=yes):
            return 1
        report = _examine(settings)
    images = _find_wanting(settings)
    gpus = find_gpus(settings, report.found.layers)
    if as_json:
        print_json(report.as_json() | {"images": images, "gpus": gpus})
    else:
        report.print()
        for image in images:
            print(f"Image {image['name']} misses {', '.join(image['missing'])}: {image['fix']}")
        print_gpus(gpus)
    return 1 if report.found.missing or report.unwritable else 0


def stop_engine(
    *,
    sandboxes: Annotated[
        bool,
        typer.Option(
            "--sandboxes", help="Stop every sandbox first. Persistent workspaces stay; ephemeral ones are deleted."
        ),
    ] = False,
) -> int:
    """End the processes that the engine keeps warm between commands.

    Running sandboxes keep running without --sandboxes. The next command starts the processes again, which takes about a
    second.
    """
    import anyio

    from warren.bootstrap.local_engine import retire_engine
    from warren.cli.service.data_lock import only_one
    from warren.settings import Settings

    settings = Settings.load()
    # A service would take its sandboxes for lost, and start them again for the next call.
    with only_one(settings.data_dir) if sandboxes else contextlib.nullcontext():
        anyio.run(retire_engine, settings, sandboxes)
    if sys.stdout.isatty():
        of_sandboxes = "Sandboxes were stopped" if sandboxes else "Running sandboxes keep running"
        print(f"The warm processes have ended. {of_sandboxes}; the next command starts them again.")
    return 0


def _find_wanting(settings: Settings) -> list[dict[str, Any]]:
    """Return the images that need something of this system which is not there, and what brings it."""
    from warren.bootstrap.app import build_catalog
    from warren.core.images.system import build_command, find_missing

    specs = (spec for spec in build_catalog(settings).specs() if spec.root == "host")
    found = ((spec.name, find_missing(spec.parts)) for spec in specs)
    return [{"name": name, "missing": list(lost), "fix": build_command(lost)} for name, lost in found if lost]


def _examine(settings: Settings) -> Report:
    from warren.bootstrap.local_engine import examine_host

    return Report(examine_host(settings), "" if _is_writable(settings.data_dir) else settings.data_dir)


def _is_writable(folder: str) -> bool:
    """Whether a folder can be written, or made where it is not there."""
    while not os.path.lexists(folder):
        folder = os.path.dirname(os.path.abspath(folder))
    # Pseudo file systems let root pass here, and make nothing.
    return os.path.isdir(folder) and os.access(folder, os.W_OK | os.X_OK) and not folder.startswith(("/proc", "/sys"))


def _repair(report: Report, *, yes: bool) -> bool:
    """Show the repairs of this host, ask, and do them; False where they were not done."""
    from warren.bootstrap.local_engine import PROGRAM_FOLDERS, apply_repairs, plan_repairs

    found = report.found
    repairs = plan_repairs(found.layers, found.host)
    if not repairs:
        _tell("There is nothing that --fix can change." if found.missing else "Every layer that is needed holds.")
        return True
    _tell("\n".join(("These commands will be run as root:", "", *map(str, repairs), "")))
    sudo = "" if found.host.is_root else shutil.which("sudo", path=PROGRAM_FOLDERS)
    if sudo is None:
        _tell("There is no sudo here: run these commands as root.")
        return False
    if not yes and not sys.stdin.isatty():
        raise ConfigError("--fix asks before it changes anything, and there is no terminal: add --yes")
    if not yes and not typer.confirm("Run them?", err=True):
        return False
    apply_repairs(repairs, sudo=sudo)
    return True


def _tell(text: str) -> None:
    print(text, file=sys.stderr)


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
