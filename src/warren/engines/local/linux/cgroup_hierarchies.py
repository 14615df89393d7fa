"""Finds the folder in which control groups can be made, for each controller: on cgroup v1 or v2.

The version depends on the controller, not on the host: a host may have both.

On v1, groups are made below the group of this process. On v2 a group either holds processes or shares out controllers,
so the keeper needs a group of its own with room beside it:

    warren.slice/               limits for Warren as a whole
      <home>/                   one for each data folder: a scope delegated by systemd, or a group of ours
        keeper/                 the keeper, and zygotes at their start
        sandboxes/              one group for each sandbox

Only this process and the one that started it are ever moved.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from warren.engines.local.linux import cgroup_mounts, control_files

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

LIMIT_FILES = {
    "memory": ("memory.limit_in_bytes", "memory.max"),
    "cpu": ("cpu.cfs_quota_us", "cpu.max"),
    "pids": ("pids.max", "pids.max"),
}
"""By controller, on v1 and v2: without this file it does not limit."""
SLICE = "warren.slice"
_KEEPER = "keeper"
_SANDBOXES = "sandboxes"
_CONTAINER = re.compile("[0-9a-f]{64}")
"""The id of a container: Docker, Podman, containerd and Kubernetes put it into the name of its group."""
_ATTEMPTS = 100
_STARTER = "starter"
"""The group of the process that started the keeper, if it was in the group that is divided."""


@dataclass(frozen=True, slots=True)
class ControllerFolder:
    """A folder of one hierarchy in which groups are made."""

    folder: str
    unified: bool
    """Whether this is cgroup v2."""


@dataclass(frozen=True, slots=True)
class Search:
    """The input of the search, beside the kernel's state."""

    name: str
    """The name of the group of one data folder."""
    starter: int = 0
    """The process that started this one; it may be moved."""
    scope: str = ""
    """The scope that systemd made for this process: where systemd manages the hierarchy, only that is divided."""
    refusal: str = ""
    """Why it made none."""


def find(search: Search) -> tuple[dict[str, ControllerFolder], dict[str, str]]:
    """Make the folders; returns them by controller, and the reason for each controller without one.

    The controllers are memory, cpu, pids, and cpuacct where v1 counts processor time apart.
    """
    mounts = cgroup_mounts.load_mounts()
    own = cgroup_mounts.load_groups()
    places: dict[str, ControllerFolder] = {}
    missing: dict[str, str] = {}
    for controller in ("memory", "cpu", "pids", "cpuacct"):
        if controller not in own:
            continue
        try:
            places[controller] = _make_v1(mounts, controller, own[controller], search.name)
        except OSError as exc:
            missing[controller] = str(exc.strerror)
    wanted = [controller for controller in LIMIT_FILES if controller not in own]
    if wanted:
        found, refused = _make_v2(mounts, own.get(""), search, wanted)
        places |= found
        missing |= refused
    # It only counts: without it no limit is missing.
    missing.pop("cpuacct", None)
    return places, missing


def uses_v2() -> bool:
    """Whether one of our controllers is on cgroup v2 only."""
    return any(controller not in cgroup_mounts.load_groups() for controller in LIMIT_FILES)


def is_named(place: ControllerFolder, name: str) -> bool:
    """Whether a folder was made by a search for that name."""
    home = os.path.basename(os.path.dirname(place.folder) if place.unified else place.folder)
    # Earlier versions left out the last part of the name.
    return home in {name, name.rpartition("-")[0]} or (home.startswith(f"{name}-") and home.endswith(".scope"))


def enter(place: ControllerFolder) -> None:
    """Move this process beside the groups of a v2 folder that an earlier process made. Raises OSError."""
    if place.unified:
        folder = f"{os.path.dirname(place.folder)}/{_KEEPER}"
        _make_folder(folder)
        _move(os.getpid(), folder)


def leave(place: ControllerFolder) -> None:
    """Remove the empty groups around a v2 folder, and move this process out of them where that is allowed."""
    if not place.unified:
        return
    home = os.path.dirname(place.folder)
    if home.endswith(".scope"):
        # Systemd removes it with the last process.
        return
    parent = os.path.dirname(home)
    # WHY: a group with a process in it cannot be removed. Of the parents only the root of the hierarchy takes
    # processes; elsewhere an empty group stays behind, until the container ends.
    with contextlib.suppress(OSError):
        if os.path.basename(parent) == SLICE and not os.path.exists(f"{os.path.dirname(parent)}/cgroup.type"):
            _move(os.getpid(), os.path.dirname(parent))
    for folder in (f"{home}/{_KEEPER}", home, f"{parent}/{_STARTER}", parent):
        with contextlib.suppress(OSError):
            os.rmdir(folder)


def _make_v1(mounts: list[cgroup_mounts.Mount], controller: str, path: str, name: str) -> ControllerFolder:
    usable = [mount for mount in mounts if mount.fstype == "cgroup" and controller in mount.options]
    if not usable:
        raise OSError(errno.ENOENT, f"the {controller} controller is in use by cgroup v1, which is not mounted here")
    folder = f"{cgroup_mounts.locate(usable, path)[1]}/{name}"
    _make_folder(folder)
    if controller in LIMIT_FILES:
        _check_writable(f"{folder}/{LIMIT_FILES[controller][0]}")
    _check_writable(f"{folder}/cgroup.procs")
    return ControllerFolder(folder, unified=False)


def _make_v2(
    mounts: list[cgroup_mounts.Mount], path: str | None, search: Search, wanted: list[str]
) -> tuple[dict[str, ControllerFolder], dict[str, str]]:
    usable = [mount for mount in mounts if mount.fstype == "cgroup2"]
    if path is None or not usable:
        return {}, {
            controller: f"no cgroup hierarchy with the {controller} controller is mounted" for controller in wanted
        }
    try:
        top, own = cgroup_mounts.locate(usable, path)
        return make_unified(top, own, search, wanted)
    except OSError as exc:
        return {}, dict.fromkeys(wanted, str(exc.strerror))


def make_unified(
    top: str, own: str, search: Search, wanted: Collection[str]
) -> tuple[dict[str, ControllerFolder], dict[str, str]]:
    """Make a home in the v2 hierarchy at `top`, for a process in the group `own`, with the available controllers.

    The highest group that offers all of them is divided, else the one that offers most.
    """
    if search.refusal:
        return {}, dict.fromkeys(wanted, search.refusal)
    chosen, offers, refusals = "", frozenset[str](), []
    for group in _candidates(top, own, search):
        try:
            offered = _check_divisible(group, search).intersection(wanted)
        except OSError as exc:
            refusals.append(str(exc.strerror))
            continue
        if len(offered) > len(offers):
            chosen, offers = group, offered
    if not chosen:
        why = refusals[-1] if refusals else f"no controller is delegated to {own}"
        return {}, dict.fromkeys(wanted, why)
    missing = {name: f"the {name} controller is not delegated to {chosen}" for name in wanted if name not in offers}
    home = chosen if search.scope else f"{chosen}/{SLICE}/{search.name}"
    place = ControllerFolder(f"{home}/{_SANDBOXES}", unified=True)
    try:
        _divide(chosen, home, sorted(offers), search)
    except OSError:
        with contextlib.suppress(OSError):
            os.rmdir(place.folder)
        leave(place)
        raise
    return dict.fromkeys(sorted(offers), place), missing


def _candidates(top: str, own: str, search: Search) -> Iterator[str]:
    """List the groups to try, the highest first: our own and its parents, up to the container's or systemd's."""
    if search.scope:
        yield own
        return
    # Groups below our slice come from an earlier start.
    parts = [part for part in own.partition(f"/{SLICE}")[0][len(top) :].split("/") if part]
    # WHY: a container may see the host's hierarchy. The limits of the container do not hold above its own group.
    first = max((number for number, part in enumerate(parts, 1) if _CONTAINER.search(part)), default=0)
    for count in range(first, len(parts) + 1):
        yield "/".join((top, *parts[:count]))


def _check_divisible(group: str, search: Search) -> frozenset[str]:
    """Return the controllers for groups below this one. Raises OSError when it cannot be divided."""
    _check_writable(f"{group}/cgroup.procs")
    _check_writable(f"{group}/cgroup.subtree_control")
    if search.scope and os.path.basename(group) != search.scope:
        raise OSError(errno.EPERM, f"systemd made {search.scope}, but this process is in {group}")
    if not _is_root(group):
        # WHY: cpu and pids, which are threaded controllers, could be shared out of a group with processes. But that
        # makes it a threaded domain, in which memory cannot be limited.
        kind = control_files.read(f"{group}/cgroup.type").strip()
        if kind != "domain":
            raise OSError(errno.EOPNOTSUPP, f"{group} is a {kind} group, in which memory cannot be limited")
        others = sorted(_load_pids(group) - {os.getpid(), search.starter})
        if others:
            shown = ", ".join(map(str, others[:3])) + (" and others" if len(others) > 3 else "")
            raise OSError(errno.EBUSY, f"{group} cannot be divided: it holds processes that are not Warren's ({shown})")
    return frozenset(control_files.read(f"{group}/cgroup.controllers").split())


def _divide(group: str, home: str, controllers: list[str], search: Search) -> None:
    """Make `home` with its two folders, move our processes into it, then share the controllers out, down to it.

    WHY in this order: controllers cannot be shared out of a group that holds processes.
    """
    above = [] if home == group else [group, os.path.dirname(home)]
    _make_home(home)
    if not _is_root(group) and search.starter in _load_pids(group):
        starter = f"{above[-1] if above else home}/{_STARTER}"
        _make_folder(starter)
        _move(search.starter, starter)
    _move(os.getpid(), f"{home}/{_KEEPER}")
    for folder in (*above, home, f"{home}/{_SANDBOXES}"):
        control_files.write(f"{folder}/cgroup.subtree_control", " ".join(f"+{name}" for name in controllers))


def _make_home(home: str) -> None:
    for attempts_left in reversed(range(_ATTEMPTS)):
        try:
            for folder in (os.path.dirname(home), home, f"{home}/{_KEEPER}", f"{home}/{_SANDBOXES}"):
                _make_folder(folder)
        except FileNotFoundError:
            # WHY: an ending keeper of another data folder removes the slice while it is empty.
            if not attempts_left:
                raise
        else:
            return


def _is_root(group: str) -> bool:
    """Whether this is the root of the hierarchy: only it may hold processes and share out controllers."""
    return not os.path.exists(f"{group}/cgroup.type")


def _load_pids(group: str) -> set[int]:
    return {int(line) for line in control_files.read(f"{group}/cgroup.procs").split()}


def _move(pid: int, group: str) -> None:
    control_files.write(f"{group}/cgroup.procs", str(pid))


def _make_folder(folder: str) -> None:
    try:
        os.mkdir(folder)
        # As other groups, for any umask: usage may be read by all users.
        os.chmod(folder, 0o755)
    except FileExistsError:
        pass
    except OSError as exc:
        raise OSError(exc.errno, f"a control group cannot be made at {folder} ({exc.strerror})") from None


def _check_writable(path: str) -> None:
    if not os.path.exists(path):
        raise OSError(errno.ENOENT, f"{path} is not there, so this controller limits nothing")
    if not os.access(path, os.W_OK):
        raise OSError(errno.EACCES, f"{path} may not be written by uid {os.geteuid()}")
