"""Mounts of cgroup hierarchies, and the groups of a process."""

from __future__ import annotations

import errno
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


@dataclass(frozen=True, slots=True)
class Mount:
    """One mount of a hierarchy."""

    fstype: str
    root: str
    folder: str
    options: frozenset[str]


def load_mounts() -> list[Mount]:
    """List the hierarchies that this process can see."""
    mounts = []
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
        for line in file:
            before, _, after = line.rstrip("\n").partition(" - ")
            fields, filesystem = before.split(" "), after.split(" ")
            if filesystem[0] in {"cgroup", "cgroup2"}:
                options = frozenset(filesystem[2].split(","))
                mounts.append(Mount(filesystem[0], _unescape(fields[3]), _unescape(fields[4]), options))
    return mounts


def load_groups(pid: int | str = "self") -> dict[str, str]:
    """Return the groups of a process by v1 controller; "" is the v2 one."""
    groups = {}
    with open(f"/proc/{pid}/cgroup", encoding="utf-8", errors="surrogateescape") as file:
        for line in file:
            _, controllers, path = line.rstrip("\n").split(":", 2)
            for controller in controllers.split(","):
                groups[controller] = path
    return groups


def locate(mounts: Iterable[Mount], path: str) -> tuple[str, str]:
    """Return the visible folders of the top of the hierarchy and of the group `path`."""
    for mount in mounts:
        root = mount.root.rstrip("/")
        if path == mount.root or path.startswith(root + "/"):
            return mount.folder, (mount.folder + path[len(root) :]).rstrip("/")
    raise OSError(errno.ENOENT, f"the control group {path} of this process is not mounted where it can be seen")


def _unescape(text: str) -> str:
    for code, character in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        text = text.replace(code, character)
    return text
