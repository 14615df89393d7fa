"""Finds, for each controller, where control groups of ours can be made: below our own group, on cgroup v1 or v2.

Which version holds is a question for each controller, never for the host: a host may have both, with one controller
here and the others there. Groups are made below our own, so that limits put on Warren itself hold for its sandboxes.
"""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass

from warren.engines.local import control_files

LIMIT_FILES = {
    "memory": ("memory.limit_in_bytes", "memory.max"),
    "cpu": ("cpu.cfs_quota_us", "cpu.max"),
    "pids": ("pids.max", "pids.max"),
}
"""By controller, on v1 and on v2: without this file it does not limit."""
_MOVES_MAX = 50


@dataclass(frozen=True, slots=True)
class Place:
    """A folder of one hierarchy in which groups of ours are made."""

    folder: str
    unified: bool
    """Whether this is cgroup v2."""


@dataclass(frozen=True, slots=True)
class _Mount:
    fstype: str
    root: str
    folder: str
    options: frozenset[str]


def find(name: str, *, may_move: bool = True) -> tuple[dict[str, Place], dict[str, str]]:
    """Make the folder `name` in each hierarchy; returns places by controller, and why the others have none.

    The controllers are memory, cpu, pids, and cpuacct where v1 counts processor time apart. Without `may_move` no
    process changes its group, and a controller that could be had by moving some is in neither answer.
    """
    mounts = _load_mounts()
    own = _load_own_groups()
    places: dict[str, Place] = {}
    missing: dict[str, str] = {}
    for controller in ("memory", "cpu", "pids", "cpuacct"):
        if controller not in own:
            continue
        try:
            places[controller] = _make_v1(mounts, controller, own[controller], name)
        except OSError as exc:
            missing[controller] = str(exc.strerror)
    wanted = [controller for controller in LIMIT_FILES if controller not in own]
    if wanted:
        found, refused = _make_v2(mounts, own.get(""), name, wanted, may_move=may_move)
        places |= found
        missing |= refused
    # Only counts: its absence is no missing limit.
    missing.pop("cpuacct", None)
    return places, missing


def _load_mounts() -> list[_Mount]:
    mounts = []
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
        for line in file:
            before, _, after = line.rstrip("\n").partition(" - ")
            fields, filesystem = before.split(" "), after.split(" ")
            if filesystem[0] in {"cgroup", "cgroup2"}:
                options = frozenset(filesystem[2].split(","))
                mounts.append(_Mount(filesystem[0], _unescape(fields[3]), _unescape(fields[4]), options))
    return mounts


def _load_own_groups() -> dict[str, str]:
    """Return the group of this process by v1 controller; "" is the v2 one."""
    groups = {}
    with open("/proc/self/cgroup", encoding="utf-8", errors="surrogateescape") as file:
        for line in file:
            _, controllers, path = line.rstrip("\n").split(":", 2)
            for controller in controllers.split(","):
                groups[controller] = path
    return groups


def _unescape(text: str) -> str:
    for code, character in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        text = text.replace(code, character)
    return text


def _locate(mounts: list[_Mount], path: str, name: str) -> str:
    """Return the folder where a group of ours is seen, without what an earlier start of ours put us into."""
    components = path.strip("/").split("/")
    for position, component in enumerate(components):
        if component in {name, _host_name(name)}:
            path = "/" + "/".join(components[:position])
            break
    for mount in mounts:
        root = mount.root.rstrip("/")
        if path == mount.root or path.startswith(root + "/"):
            return (mount.folder + path[len(root) :]).rstrip("/")
    raise OSError(errno.ENOENT, f"the control group {path} of this process is not mounted where it can be seen")


def _host_name(name: str) -> str:
    return f"{name}.host"


def _make_v1(mounts: list[_Mount], controller: str, path: str, name: str) -> Place:
    usable = [mount for mount in mounts if mount.fstype == "cgroup" and controller in mount.options]
    if not usable:
        raise OSError(errno.ENOENT, f"the {controller} controller is in use by cgroup v1, which is not mounted here")
    folder = f"{_locate(usable, path, name)}/{name}"
    _make_folder(folder)
    if controller in LIMIT_FILES:
        _check_writable(f"{folder}/{LIMIT_FILES[controller][0]}")
    _check_writable(f"{folder}/cgroup.procs")
    return Place(folder, unified=False)


def _make_v2(
    mounts: list[_Mount], path: str | None, name: str, wanted: list[str], *, may_move: bool
) -> tuple[dict[str, Place], dict[str, str]]:
    usable = [mount for mount in mounts if mount.fstype == "cgroup2"]
    if path is None or not usable:
        return {}, {
            controller: f"no cgroup hierarchy with the {controller} controller is mounted" for controller in wanted
        }
    try:
        return make_unified(find_delegated(_locate(usable, path, name)), name, wanted, may_move=may_move)
    except OSError as exc:
        return {}, dict.fromkeys(wanted, str(exc.strerror))


def find_delegated(own: str) -> str:
    """Return the v2 group that is ours to divide: our own, or the one around it when systemd gave us that.

    With `DelegateSubgroup=` it does, so that there is a group without others below it to start a service in again.
    """
    around = os.path.dirname(own)
    return around if _is_delegated(around) and not _is_delegated(own) else own


def _is_delegated(folder: str) -> bool:
    for name in ("trusted.delegate", "user.delegate"):
        try:
            if os.getxattr(folder, name) == b"1":
                return True
        except OSError:
            continue
    return False


def make_unified(
    own: str, name: str, wanted: list[str], *, may_move: bool = True
) -> tuple[dict[str, Place], dict[str, str]]:
    """Make `name` below the v2 group `own`, with those of the wanted controllers that it can have."""
    folder = f"{own}/{name}"
    _make_folder(folder)
    places: dict[str, Place] = {}
    missing: dict[str, str] = {}
    offered = control_files.read(f"{own}/cgroup.controllers").split()
    for controller in wanted:
        if controller not in offered:
            missing[controller] = f"the {controller} controller is not delegated to {own}"
            continue
        try:
            _check_writable(f"{own}/cgroup.procs")
            _check_writable(f"{folder}/cgroup.procs")
            if not _enable(own, name, controller, may_move=may_move):
                continue
            control_files.write(f"{folder}/cgroup.subtree_control", f"+{controller}")
        except OSError as exc:
            missing[controller] = str(exc.strerror)
        else:
            places[controller] = Place(folder, unified=True)
    return places, missing


def _enable(own: str, name: str, controller: str, *, may_move: bool) -> bool:
    """Share the controller out to the groups below `own`; False when processes would have to move for that."""
    control = f"{own}/cgroup.subtree_control"
    if controller in control_files.read(control).split():
        return True
    try:
        control_files.write(control, f"+{controller}")
    except OSError as exc:
        if exc.errno != errno.EBUSY:
            raise
        if not may_move:
            return False
        # WHY: v2 lets a group either hold processes or share out controllers, not both, the root excepted. So what
        # runs in our own group moves one step down, where every limit that held for it still holds.
        _move_down(own, f"{own}/{_host_name(name)}")
        control_files.write(control, f"+{controller}")
    return True


def _move_down(own: str, host: str) -> None:
    _make_folder(host)
    for _ in range(_MOVES_MAX):
        pids = control_files.read(f"{own}/cgroup.procs").split()
        if not pids:
            return
        for pid in pids:
            try:
                control_files.write(f"{host}/cgroup.procs", pid)
            except OSError as exc:
                if exc.errno != errno.ESRCH:
                    raise
    raise OSError(errno.EBUSY, f"processes keep appearing in {own}, so its controllers cannot be shared out")


def _make_folder(folder: str) -> None:
    try:
        os.mkdir(folder)
    except FileExistsError:
        pass
    except OSError as exc:
        raise OSError(exc.errno, f"a control group cannot be made at {folder} ({exc.strerror})") from None


def _check_writable(path: str) -> None:
    if not os.path.exists(path):
        raise OSError(errno.ENOENT, f"{path} is not there, so this controller limits nothing")
    if not os.access(path, os.W_OK):
        raise OSError(errno.EACCES, f"{path} may not be written by uid {os.geteuid()}")
