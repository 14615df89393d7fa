"""Repairs: the changes of `warren doctor --fix` to a host, as steps that are shown before they run.

Rules for changes here:
1. The narrowest repair that helps: a profile for Warren's keeper, never the setting that opens a host to every program.
2. A step that was done already is not planned again, and a file that Warren did not write is not replaced.
3. The shown step is the step that runs: one argv, and the text of its standard input.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING

from warren.engines.local.linux import apparmor
from warren.engines.local.probe import remedies

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from warren.engines.local.linux.host import Host
    from warren.engines.local.probe.layers import Layer

PROGRAM_FOLDERS = "/usr/local/sbin:/usr/sbin:/sbin:/usr/local/bin:/usr/bin:/bin"
_CONTROLLERS = ("memory", "cpu", "pids")
_DROP_IN = "/etc/systemd/system/user@.service.d/{name}.conf"
_DELEGATE = "# So that users may bound what their programs take: for Warren, by `warren doctor --fix`.\n"
_DELEGATE += "[Service]\nDelegate=cpu memory pids\n"
_DELEGATES_CPU = 252
"""Since this version of systemd user managers have the cpu controller by default."""
_NAMESPACES = ("user", "mount", "pid", "net", "ipc", "uts", "cgroup", "nesting")
_INSTALL = {
    "apt": ("apt-get", "install", "--yes", "e2fsprogs"),
    "dnf": ("dnf", "install", "--assumeyes", "e2fsprogs"),
    "zypper": ("zypper", "--non-interactive", "install", "e2fsprogs"),
    "pacman": ("pacman", "-S", "--noconfirm", "e2fsprogs"),
    "apk": ("apk", "add", "e2fsprogs", "e2fsprogs-extra"),
}


@dataclass(frozen=True, slots=True)
class Repair:
    """One step, which needs root."""

    why: str
    argv: tuple[str, ...]
    text: str = ""
    """Its standard input: the content of the file that it writes."""

    def __str__(self) -> str:
        """Format it as a shell command."""
        command = f"# {self.why}\n{shlex.join(self.argv)}"
        return f"{command} <<'END'\n{self.text}END" if self.text else command


def plan_repairs(layers: Iterable[Layer], host: Host, *, root: str = "/") -> tuple[Repair, ...]:
    """Plan the steps that make missing layers hold, as far as a program can; files are below `root`."""
    missing = {layer.name: layer.detail for layer in layers if not layer.holds}
    return (
        *_repair_sysctl(missing, host, root),
        *_repair_apparmor(missing, host, root),
        *_repair_manager(missing, host),
        *_repair_delegation(missing, host, root),
        *_repair_disk(missing, host, root),
    )


def apply(repairs: Sequence[Repair], *, sudo: str = "", path: str = PROGRAM_FOLDERS) -> None:
    """Run the steps in order, through `sudo` where given. Raises RuntimeError at the first that fails."""
    for repair in repairs:
        program = shutil.which(repair.argv[0], path=path)
        if program is None:
            raise RuntimeError(f"{repair.argv[0]} is not installed, so `{shlex.join(repair.argv)}` cannot be run")
        argv = [program, *repair.argv[1:]]
        done = subprocess.run([sudo, *argv] if sudo else argv, input=repair.text.encode(), check=False)
        if done.returncode:
            raise RuntimeError(f"`{shlex.join(repair.argv)}` failed with exit code {done.returncode}")


def _repair_sysctl(missing: dict[str, str], host: Host, root: str) -> list[Repair]:
    # WHY not in a container: the settings belong to the host, and are read-only there.
    if host.container not in {"", "wsl2"}:
        return []
    lines = []
    for name in _NAMESPACES:
        if name in missing:
            error = 28 if "No space left" in missing[name] else 0
            lines.append(remedies.find_sysctl("user" if name == "nesting" else name, error, root=root))
    wanted = sorted(set(filter(None, lines)))
    if not wanted:
        return []
    file = _at(root, "/etc/sysctl.d/60-warren.conf")
    names = {line.partition("=")[0] for line in wanted}
    # Other lines are kept: an earlier repair, or settings of the operator.
    kept = [line for line in _read(file).splitlines() if line.partition("=")[0].strip() not in names]
    text = "".join(f"{line}\n" for line in (*kept, *(line.replace("=", " = ") for line in wanted)))
    return [
        Repair("A kernel setting forbids namespaces to all users; sandboxes need them.", _install(file), text),
        Repair("Apply it now.", ("sysctl", "-p", file)),
    ]


def _repair_apparmor(missing: dict[str, str], host: Host, root: str) -> list[Repair]:
    if host.is_root or not host.userns_restricted or "user" not in missing or host.profile == "loaded":
        return []
    file = _at(root, apparmor.PATH)
    why = "AppArmor forbids user namespaces to users. Warren's keeper enters this profile, which allows them."
    write = [] if _read(file) == apparmor.TEXT else [Repair(why, _install(file), apparmor.TEXT)]
    return [*write, Repair("Load the profile.", ("apparmor_parser", "-r", file))]


def _repair_manager(missing: dict[str, str], host: Host) -> list[Repair]:
    if not _needs_user_groups(missing, host) or host.user_manager:
        return []
    why = "Start systemd's manager of this user, also without a login: it delegates control groups."
    return [
        Repair(why, ("loginctl", "enable-linger", remedies.user_name(host.uid))),
        Repair("Wait until it runs.", ("systemctl", "start", f"user@{host.uid}.service")),
    ]


def _repair_delegation(missing: dict[str, str], host: Host, root: str) -> list[Repair]:
    if not _needs_user_groups(missing, host):
        return []
    lacks = [name for name in _CONTROLLERS if name in missing and name not in host.user_controllers]
    known_to_delegate = not host.user_manager and host.init_version >= _DELEGATES_CPU
    files = [_at(root, _DROP_IN.format(name=name)) for name in ("delegate", "warren")]
    if not lacks or known_to_delegate or any(_read(file) == _DELEGATE for file in files):
        return []
    file = next((file for file in files if not os.path.exists(file)), files[-1])
    why = f"systemd does not delegate {', '.join(lacks)} to users. Takes effect when you log in again."
    return [Repair(why, _install(file), _DELEGATE), Repair("Make systemd read it.", ("systemctl", "daemon-reload"))]


def _repair_disk(missing: dict[str, str], host: Host, root: str) -> list[Repair]:
    detail = missing.get("disk", "")
    if ("mkfs.ext4" in detail or "e2fsck" in detail) and host.packages in _INSTALL:
        return [Repair("Disk quotas are ext4 images, which mkfs.ext4 makes.", _INSTALL[host.packages])]
    if "/dev/loop-control" in detail and host.container in {"", "wsl2"}:
        file = _at(root, "/etc/modules-load.d/warren.conf")
        return [
            Repair("Disk quotas are images on loop devices: load their driver.", ("modprobe", "-a", "loop", "ext4")),
            Repair("And at every boot.", _install(file), "loop\next4\n"),
        ]
    return []


def _needs_user_groups(missing: dict[str, str], host: Host) -> bool:
    needs = any(name in missing for name in _CONTROLLERS)
    return needs and not host.is_root and host.has_systemd and host.cgroups == "v2"


def _install(file: str) -> tuple[str, ...]:
    return ("install", "-D", "-m", "644", "/dev/stdin", file)


def _at(root: str, path: str) -> str:
    return os.path.join(root, path.lstrip("/"))


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read(1 << 16)
    except OSError:
        return ""
