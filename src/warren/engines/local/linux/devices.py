"""Device nodes of a sandbox, and the control group that lets it open no others.

1. A node is checked and passed as one open descriptor, never as a name that may mean another file meanwhile.
2. The filter holds before the sandbox has the nodes, and before any of its code runs.
3. Zygotes are never in such a group and have no such node: a driver cannot be initialised before the copy is made.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import stat
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from warren.domain.errors import EngineUnavailable, Unsupported
from warren.engines.local.linux import control_files, device_filter, syscalls
from warren.engines.local.linux.cgroup_mounts import Mount, load_groups, load_mounts, locate
from warren.engines.local.linux.device_filter import STANDARD, Rule
from warren.engines.local.linux.fork_trial import Failure, attempt

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

LAYER = "devices"
NODES_MAX = 64
ROOTLESS = (
    "GPUs need Warren to run as root on this host: an ordinary user can neither hand a device node to a sandbox nor "
    "make a control group that allows just these"
)
FIX = "run it as root, where the kernel has CONFIG_CGROUP_DEVICE (cgroup v1) or CONFIG_CGROUP_BPF (v2)"
_NULL = Rule(1, 3)


def why_refused(layers: Collection[str], optional: Collection[str]) -> str:
    """Return why no sandbox of this host gets a GPU; empty where they can."""
    if "uid" not in layers:
        return ROOTLESS
    if LAYER not in layers and LAYER not in optional:
        return f"layer {LAYER} does not hold here: {FIX}"
    return ""


@dataclass(frozen=True, slots=True)
class Needs:
    """What a sandbox with GPUs needs; `engines/gpus/inventory.py` describes it."""

    ids: tuple[str, ...]
    nodes: tuple[tuple[str, str], ...]
    """Paths inside and on this host."""
    driver: dict[str, Any]
    """Libraries, programs and variables of its driver, in its zygote's root."""
    main: tuple[str, ...] = ()
    """Of the nodes, one for each GPU."""

    @property
    def paths(self) -> tuple[str, ...]:
        """Where the sandbox sees its device nodes."""
        return tuple(inside for inside, _host in self.nodes)

    @property
    def key(self) -> str:
        """The key of a root with this driver: sandboxes that differ only in their devices share one zygote."""
        # Without variables: a spec may name others for each device, and each set of devices would have a zygote.
        mounted = {name: self.driver[name] for name in ("libraries", "programs")}
        return f"gpu-{hashlib.sha256(json.dumps(mounted, sort_keys=True).encode()).hexdigest()[:12]}"

    @classmethod
    def parse(cls, value: dict[str, Any]) -> Needs:
        """Build it from plain JSON as the engine sends it."""
        nodes = tuple((str(inside), str(host)) for inside, host in value["nodes"])
        if len(nodes) > NODES_MAX:
            raise EngineUnavailable(f"a sandbox can have {NODES_MAX} device nodes, and its GPUs need {len(nodes)}")
        driver = {name: value[name] for name in ("libraries", "programs", "env")}
        return cls(tuple(value["ids"]), nodes, driver, tuple(value["main"]))


@dataclass(frozen=True, slots=True)
class Handed:
    """Device nodes for a sandbox: detached mounts, and the rules that allow them."""

    fds: tuple[int, ...]
    rules: tuple[Rule, ...]

    def close(self) -> None:
        """Close the descriptors."""
        for fd in self.fds:
            os.close(fd)


def hand_over(needs: Needs) -> Handed:
    """Clone the nodes as mounts that a sandbox can attach. Raises OSError, with nothing left open."""
    with contextlib.ExitStack() as opened:
        fds, rules = [], []
        for _inside, host in needs.nodes:
            fd = syscalls.open_tree(syscalls.AT_FDCWD, host, syscalls.OPEN_TREE_CLONE)
            opened.callback(os.close, fd)
            found = os.fstat(fd)
            if not stat.S_ISCHR(found.st_mode):
                raise OSError(errno.ENODEV, f"{host} is not a character device")
            syscalls.mount_setattr(fd, "", syscalls.MOUNT_ATTR_NOSUID | syscalls.MOUNT_ATTR_NOEXEC)
            fds.append(fd)
            rules.append(Rule(os.major(found.st_rdev), os.minor(found.st_rdev)))
        opened.pop_all()
    return Handed(tuple(fds), tuple(rules))


class DeviceControl:
    """Confines processes to some devices, by the kernel's device controller."""

    def __init__(self, name: str, *, is_root: bool, holds: bool, is_optional: bool) -> None:
        self._name = f"{name}.devices"
        self._is_root = is_root
        self._holds = holds
        self._is_optional = is_optional

    def check(self) -> None:
        """Raise Unsupported or EngineUnavailable where no sandbox can have a device."""
        if not self._is_root:
            raise Unsupported(ROOTLESS)
        if not self._holds and not self._is_optional:
            raise EngineUnavailable(
                f"layer {LAYER} does not hold here, so no sandbox is given a GPU: {FIX}, "
                f"or add it to WARREN_OPTIONAL_LAYERS to do without it"
            )

    def confine(self, pid: int, group: str, rules: Iterable[Rule]) -> str:
        """Let a process, and all its descendants, open the standard devices and these only.

        `group` is the name of its control group. Returns the folder of an additional group, or "". Raises OSError.
        """
        if not self._holds:
            return ""
        place = find_place()
        own = place.group_of(pid) if place.unified else ""
        # SAFE BECAUSE: only a group with the name of this sandbox gets a filter, never a shared one.
        if own and os.path.basename(own) == group:
            device_filter.attach(own, (*STANDARD, *rules))
            return ""
        parent = f"{place.own}/{self._name}"
        with contextlib.suppress(FileExistsError):
            os.mkdir(parent)
        folder = f"{parent}/{group or f'p{pid}'}"
        make_group(place, folder, (*STANDARD, *rules))
        try:
            control_files.write(f"{folder}/cgroup.procs", str(pid))
        except OSError:
            self.release(folder)
            raise
        return folder

    def release(self, folder: str) -> None:
        """Remove an additional group, and the folder of all of them when it is empty."""
        if folder:
            control_files.remove_group(folder)
            with contextlib.suppress(OSError):
                os.rmdir(os.path.dirname(folder))

    def sweep(self, known: Iterable[str]) -> None:
        """Remove the groups of an earlier keeper that no sandbox is in."""
        with contextlib.suppress(OSError):
            parent = f"{find_place().own}/{self._name}"
            kept = set(known)
            for name in os.listdir(parent) if os.path.isdir(parent) else ():
                folder = f"{parent}/{name}"
                if os.path.isdir(folder) and folder not in kept:
                    with contextlib.suppress(OSError):
                        os.rmdir(folder)
            os.rmdir(parent)


@dataclass(frozen=True, slots=True)
class ControlPlace:
    """The hierarchy in which this host controls devices."""

    unified: bool
    mounts: tuple[Mount, ...]
    own: str
    """Folder of this process's group."""

    def group_of(self, pid: int) -> str:
        """Return the folder of a process's group. Raises OSError where it is not visible."""
        return locate(self.mounts, load_groups(pid)["" if self.unified else LAYER])[1]


def find_places() -> Iterator[ControlPlace]:
    """List the hierarchies that can control devices: v1 where this host has it, then v2."""
    groups = load_groups()
    for unified, fstype in ((False, "cgroup"), (True, "cgroup2")):
        usable = tuple(each for each in load_mounts() if each.fstype == fstype and (unified or LAYER in each.options))
        path = groups.get("" if unified else LAYER)
        with contextlib.suppress(OSError):
            if path is not None and usable:
                yield ControlPlace(unified, usable, locate(usable, path)[1])


def find_place() -> ControlPlace:
    """Find the first of them. Raises OSError when there is none."""
    for place in find_places():
        return place
    raise OSError(errno.ENOENT, "no cgroup hierarchy that controls devices is mounted where it can be seen")


def make_group(place: ControlPlace, folder: str, rules: Iterable[Rule]) -> None:
    """Make a group that allows these devices, or nothing. Raises OSError."""
    os.mkdir(folder)
    try:
        (device_filter.attach if place.unified else device_filter.write_list)(folder, rules)
    except OSError:
        os.rmdir(folder)
        raise


def try_control() -> Failure | None:
    """Check in a forked child that a process of a group can open one device and not another."""
    made: list[str] = []
    try:
        place = find_place()
        folder = f"{place.own}/warren-probe-{os.getpid()}.devices"
        make_group(place, folder, [_NULL])
        made.append(folder)
        return attempt(lambda: _try_in(folder))
    except OSError as error:
        return Failure(error.errno or 0, error.strerror or str(error))
    finally:
        for folder in made:
            control_files.remove_group(folder)


def _try_in(folder: str) -> None:
    control_files.write(f"{folder}/cgroup.procs", "0")
    os.close(os.open("/dev/null", os.O_RDWR))
    try:
        os.close(os.open("/dev/zero", os.O_RDONLY))
    except PermissionError:
        return
    raise OSError(errno.EPERM, "a device that is not allowed can be opened all the same")
