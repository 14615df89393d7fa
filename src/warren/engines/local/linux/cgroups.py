"""Control groups: memory, processor time and number of tasks of one sandbox, limited and counted by the kernel."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Self

from warren.engines import state_files
from warren.engines.local.linux import cgroup_hierarchies, control_files

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_PERIOD_US = 100_000
_KILL_TIMEOUT_S = 5.0
_PAUSE_S = 0.001


@dataclass(frozen=True, slots=True)
class GroupLimits:
    """What the tasks of a group may use together."""

    memory_bytes: int
    cpus: float
    pids: int


@dataclass(frozen=True, slots=True)
class GroupUsage:
    """What they use; None where this host does not count it."""

    memory_bytes: int | None
    memory_peak_bytes: int | None
    cpu_us: int | None
    pids: int | None


class Group:
    """The control group of one sandbox: one folder in each hierarchy that holds one of our controllers."""

    def __init__(
        self,
        name: str,
        places: dict[str, cgroup_hierarchies.ControllerFolder],
        cpus_max: float,
        dropped: Iterable[cgroup_hierarchies.ControllerFolder] = (),
    ) -> None:
        self.name = name
        self._dropped = [f"{place.folder}/{name}" for place in dropped]
        """Where it is not made any more, and may have been."""
        self._folders = {controller: f"{place.folder}/{name}" for controller, place in places.items()}
        self._unified = {controller for controller, place in places.items() if place.unified}
        self._cpus_max = cpus_max

    def make(self, limits: GroupLimits) -> None:
        """Make its folders, with the limits, or nothing. Raises FileExistsError when one is there already."""
        made = []
        try:
            for folder in self._all_folders():
                os.mkdir(folder)
                made.append(folder)
            self.resize(limits)
        except OSError:
            for folder in made:
                os.rmdir(folder)
            raise

    def resize(self, limits: GroupLimits) -> None:
        """Set other limits. Raises OSError when more memory is in use than the new limit, and cannot be freed."""
        if "memory" in self._folders:
            self._set_memory(self._folders["memory"], limits.memory_bytes)
        if "cpu" in self._folders:
            folder = self._folders["cpu"]
            quota = max(1000, int(min(limits.cpus, self._cpus_max) * _PERIOD_US))
            if "cpu" in self._unified:
                control_files.write(f"{folder}/cpu.max", f"{quota} {_PERIOD_US}")
            else:
                control_files.write(f"{folder}/cpu.cfs_quota_us", str(quota))
        if "pids" in self._folders:
            control_files.write(f"{self._folders['pids']}/pids.max", str(limits.pids))

    def limits(self) -> GroupLimits:
        """Read back what is set, from the hierarchies that it has."""
        memory, quota, pids = 0, 0, 0
        if folder := self._folders.get("memory"):
            name = cgroup_hierarchies.LIMIT_FILES["memory"]["memory" in self._unified]
            memory = int(control_files.read(f"{folder}/{name}"))
        if folder := self._folders.get("cpu"):
            name = cgroup_hierarchies.LIMIT_FILES["cpu"]["cpu" in self._unified]
            quota = int(control_files.read(f"{folder}/{name}").split()[0])
        if folder := self._folders.get("pids"):
            pids = int(control_files.read(f"{folder}/pids.max"))
        return GroupLimits(memory_bytes=memory, cpus=quota / _PERIOD_US, pids=pids)

    def _set_memory(self, folder: str, memory_bytes: int) -> None:
        amount = str(memory_bytes)
        if "memory" in self._unified:
            control_files.write(f"{folder}/memory.max", amount)
            control_files.write_if_there(f"{folder}/memory.swap.max", "0")
            return
        limit, with_swap = f"{folder}/memory.limit_in_bytes", f"{folder}/memory.memsw.limit_in_bytes"
        try:
            control_files.write(limit, amount)
        except OSError as exc:
            # WHY: memory alone may never be allowed more than memory and swap together, so growing goes the other
            # way round. Equal limits mean no swap.
            if exc.errno != errno.EINVAL:
                raise
            control_files.write(with_swap, amount)
            control_files.write(limit, amount)
        control_files.write_if_there(with_swap, amount)

    def usage(self) -> GroupUsage:
        """Read the counters."""
        return GroupUsage(
            memory_bytes=self._count("memory_now"),
            memory_peak_bytes=self._count("memory_peak"),
            cpu_us=self._cpu_us(),
            pids=self._count("pids_now"),
        )

    def facts(self) -> dict[str, int]:
        """Open the counters that guest/system/facts.py reads, read-only, by its names; the caller closes them."""
        opened: dict[str, int] = {}
        for fact in _FACT_FILES:
            path = self._fact_path(fact)
            if path is not None:
                with contextlib.suppress(FileNotFoundError):
                    opened[fact] = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        return opened

    def procs_fds(self) -> list[int]:
        """Open `cgroup.procs` of each hierarchy: a process joins by writing "0" to each. The caller closes them.

        The kernel goes by the rights of the opener, so a process without any can be handed them: on v2 as on v1.
        """
        return [os.open(f"{folder}/cgroup.procs", os.O_WRONLY | os.O_CLOEXEC) for folder in self._all_folders()]

    def directory_fd(self) -> int | None:
        """Open the v2 folder for CLONE_INTO_CGROUP, or None where that call would be refused.

        It goes by the rights of the caller: as root our callers have their own uid and none, and wait in the group.
        """
        unified = self._unified_folder()
        if unified is None or os.geteuid() == 0:
            return None
        return os.open(unified, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)

    def pids(self) -> list[int]:
        """List the processes in it, in any of its hierarchies."""
        found: set[int] = set()
        for folder in (*self._all_folders(), *self._dropped):
            with contextlib.suppress(FileNotFoundError):
                found.update(int(line) for line in control_files.read(f"{folder}/cgroup.procs").split())
        return sorted(found - {0})

    def kill(self) -> None:
        """Kill everything in it and wait until it is empty. Raises TimeoutError when something will not die."""
        if "pids" in self._folders:
            # WHY: against something that forks faster than we kill.
            control_files.write_if_there(f"{self._folders['pids']}/pids.max", "0")
        unified = self._unified_folder()
        deadline = time.monotonic() + _KILL_TIMEOUT_S
        while pids := self.pids():
            if time.monotonic() > deadline:
                raise TimeoutError(errno.ETIMEDOUT, f"processes {pids} of the control group {self.name} do not die")
            if unified is not None:
                control_files.write_if_there(f"{unified}/cgroup.kill", "1")
            self._kill_each(pids)
            time.sleep(_PAUSE_S)

    def _kill_each(self, pids: list[int]) -> None:
        handles = {}
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                handles[pid] = os.pidfd_open(pid)
        # WHY: between reading a pid and opening it, it may have become somebody else's. One that is listed again after
        # it was opened is the process that we hold.
        still = set(self.pids())
        for pid, handle in handles.items():
            try:
                if pid in still:
                    signal.pidfd_send_signal(handle, signal.SIGKILL)
            except ProcessLookupError:
                pass
            finally:
                os.close(handle)

    def remove(self) -> None:
        """Remove its folders; those that are not there count as removed. Raises OSError when it is not empty."""
        for folder in (*self._all_folders(), *self._dropped):
            control_files.remove_group(folder)

    def _all_folders(self) -> list[str]:
        return list(dict.fromkeys(self._folders.values()))

    def _unified_folder(self) -> str | None:
        return next((self._folders[controller] for controller in sorted(self._unified)), None)

    def _fact_path(self, fact: str) -> str | None:
        controller, v1, v2 = _FACT_FILES[fact]
        folder = self._folders.get(controller)
        return folder and f"{folder}/{v2 if controller in self._unified else v1}"

    def _count(self, fact: str) -> int | None:
        path = self._fact_path(fact)
        if path is None:
            return None
        try:
            return int(control_files.read(path))
        except (FileNotFoundError, ValueError):
            return None

    def _cpu_us(self) -> int | None:
        with contextlib.suppress(FileNotFoundError, ValueError):
            if "cpuacct" in self._folders:
                return int(control_files.read(f"{self._folders['cpuacct']}/cpuacct.usage")) // 1000
            unified = self._unified_folder()
            if unified is not None:
                words = control_files.read(f"{unified}/cpu.stat").split()
                return int(words[words.index("usage_usec") + 1])
        return None


_FACT_FILES = {
    "memory_oom": ("memory", "memory.oom_control", "memory.events"),
    "memory_peak": ("memory", "memory.max_usage_in_bytes", "memory.peak"),
    "memory_now": ("memory", "memory.usage_in_bytes", "memory.current"),
    "pids_events": ("pids", "pids.events", "pids.events"),
    "pids_now": ("pids", "pids.current", "pids.current"),
}
"""By guest/system/facts.py's name: controller, file on v1, file on v2."""


class Cgroups:
    """All groups of ours on this host."""

    def __init__(self, places: dict[str, cgroup_hierarchies.ControllerFolder], missing: dict[str, str]) -> None:
        self._places = dict(places)
        self._made = list(dict.fromkeys(places.values()))
        """Also those of controllers that were dropped: they are removed with the others."""
        self.missing = missing
        """Why a layer (memory, cpu, pids) cannot be limited here; empty when all can."""
        self.is_copied = False
        """Whether the note came with a copy of another data folder: what that folder's notes name is not ours."""
        cpu = places.get("cpu")
        self._cpus_max = float("inf") if cpu is None or cpu.unified else _load_cpus_max(cpu.folder)

    @classmethod
    def open(cls, search: cgroup_hierarchies.Search, kept: str) -> Self:
        """Use the folders that an earlier process noted in the file `kept`, if its groups are in use; else make some.

        The earlier process may have run in another control group; its sandboxes are found all the same.
        """
        noted = {
            controller: cgroup_hierarchies.ControllerFolder(**place)
            for controller, place in state_files.load(kept).items()
        }
        is_copied = not all(cgroup_hierarchies.is_named(place, search.name) for place in noted.values())
        if is_copied:
            noted = {}
        earlier = cls(noted, {})
        if any(earlier.group(name).pids() for name in earlier.names()):
            for place in earlier._made:
                cgroup_hierarchies.enter(place)
            why = "sandboxes run in groups that were made without it; `warren stop-engine --sandboxes` ends them"
            earlier.missing |= {name: why for name in cgroup_hierarchies.LIMIT_FILES if name not in noted}
            return earlier
        with contextlib.suppress(OSError):
            earlier.remove_all()
        places, missing = cgroup_hierarchies.find(search)
        state_files.save(kept, {controller: asdict(place) for controller, place in places.items()})
        made = cls(places, missing)
        made.is_copied = is_copied
        return made

    @property
    def places(self) -> Mapping[str, cgroup_hierarchies.ControllerFolder]:
        """Where the groups are, by controller; cpuacct only where v1 counts processor time apart."""
        return self._places

    def drop(self, controller: str, why: str) -> None:
        """Do without a controller that was found not to hold."""
        self._places.pop(controller, None)
        self.missing[controller] = why

    def make(self, group_name: str, limits: GroupLimits) -> Group:
        """Make a group, or nothing. Raises FileExistsError when it is there already."""
        group = self.group(group_name)
        group.make(limits)
        return group

    def group(self, name: str, *, only: str = "") -> Group:
        """Return the group of that name, whether it exists or not; with `only`, as that controller sees it."""
        if only:
            return Group(name, {only: self._places[only]}, self._cpus_max)
        dropped = [place for place in self._made if place not in self._places.values()]
        return Group(name, self._places, self._cpus_max, dropped)

    def names(self) -> list[str]:
        """List all groups there are, also those that exist in only some hierarchies."""
        found: set[str] = set()
        for place in self._made:
            with contextlib.suppress(FileNotFoundError):
                found.update(entry.name for entry in os.scandir(place.folder) if entry.is_dir(follow_symlinks=False))
        return sorted(found)

    def remove_unused(self) -> None:
        """Remove the folder that holds the groups, unless there are any."""
        if not self.names():
            self.remove_all()

    def remove_all(self) -> None:
        """Kill and remove every group, and the folder that holds them."""
        for name in self.names():
            group = self.group(name)
            group.kill()
            group.remove()
        for place in self._made:
            with contextlib.suppress(FileNotFoundError):
                os.rmdir(place.folder)
            cgroup_hierarchies.leave(place)


def _load_cpus_max(folder: str) -> float:
    """Return how many processors the groups above allow. v1 refuses a group that asks for more than its parent has."""
    lowest = float("inf")
    while os.path.exists(f"{folder}/cpu.cfs_quota_us"):
        quota = int(control_files.read(f"{folder}/cpu.cfs_quota_us"))
        if quota > 0:
            lowest = min(lowest, quota / int(control_files.read(f"{folder}/cpu.cfs_period_us")))
        folder = os.path.dirname(folder)
    return lowest
