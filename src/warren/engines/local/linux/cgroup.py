"""One control group: memory, processor time and number of tasks of one sandbox, limited and counted by the kernel."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from warren.engines.local.linux import cgroup_hierarchies, control_files

if TYPE_CHECKING:
    from collections.abc import Iterable

_PERIOD_US = 100_000
_KILL_TIMEOUT_S = 5.0
_PAUSE_S = 0.001


@dataclass(frozen=True, slots=True)
class GroupLimits:
    """The most that all tasks of a group may use together."""

    memory_bytes: int
    cpus: float
    pids: int


@dataclass(frozen=True, slots=True)
class GroupUsage:
    """What they use; None for a counter that this host lacks."""

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
        """Folders of dropped controllers, in which it may exist."""
        self._folders = {controller: f"{place.folder}/{name}" for controller, place in places.items()}
        self._unified = {controller for controller, place in places.items() if place.unified}
        self._cpus_max = cpus_max

    def make(self, limits: GroupLimits) -> None:
        """Make its folders, with the limits, or nothing. Raises FileExistsError when one exists."""
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
        """Set other limits. Raises OSError when more memory is in use than the new limit and cannot be freed."""
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
        """Read back the limits, from the hierarchies that it has."""
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
            # WHY: the limit on memory may never exceed that on memory and swap together, so growing goes in the other
            # order. Equal limits mean no swap.
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

    def add(self, pid: int) -> None:
        """Move a process into it. On v1 this can wait for an RCU grace period, about 17 ms on an idle machine."""
        for folder in self._all_folders():
            control_files.write(f"{folder}/cgroup.procs", str(pid))

    def has(self, pid: int) -> bool:
        """Whether a process is in it, in each of its hierarchies."""
        listed = (control_files.read(f"{folder}/cgroup.procs").split() for folder in self._all_folders())
        return all(str(pid) in pids for pids in listed)

    def pids(self) -> list[int]:
        """List the processes in it, in any of its hierarchies."""
        found: set[int] = set()
        for folder in (*self._all_folders(), *self._dropped):
            with contextlib.suppress(FileNotFoundError):
                found.update(int(line) for line in control_files.read(f"{folder}/cgroup.procs").split())
        return sorted(found - {0})

    def kill(self) -> None:
        """Kill everything in it and wait until it is empty. Raises TimeoutError when a process does not die."""
        if "pids" in self._folders:
            # WHY: against a program that forks faster than it is killed.
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
        # WHY: between reading a pid and opening it, the pid may have been reused. A pid that is listed again after it
        # was opened is that of the pidfd.
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
        """Remove its folders; missing ones count as removed. Raises OSError when it is not empty."""
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
"""By the name in guest/system/facts.py: controller, file on v1, file on v2."""
