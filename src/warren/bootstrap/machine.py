"""This machine as the maxima of one sandbox: its memory and processors, or those of our control group, and its disk."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

from warren.domain.values import MIB
from warren.engines.local.linux import cgroup_mounts

if TYPE_CHECKING:
    from collections.abc import Iterator

    from warren.settings import Settings

DISK_SHARE = 2
"""One workspace may have this fraction of the data disk."""
PIDS_SHARE = 4
_SMALLEST = {"memory_bytes": 64 * MIB, "cpus": 0.05, "pids": 16, "disk_bytes": 16 * MIB}
"""Of any sandbox: on a smaller machine these are the maxima."""
_MOST_PIDS = 32_768


def build_maxima(settings: Settings) -> dict[str, float]:
    """Return the largest limits of one sandbox, by the names in `Limits`; those without a limit are left out."""
    maxima = {}
    for name, measure in (
        ("memory_bytes", read_memory),
        ("cpus", read_cpus),
        ("pids", _read_pids),
        ("disk_bytes", lambda: _read_disk(settings.data_dir)),
    ):
        chosen = getattr(settings.maximum, name)
        most = max(measure(), _SMALLEST[name]) if chosen == "auto" else chosen
        if most:
            maxima[name] = most
    return maxima


def read_memory() -> int:
    """Return the bytes of memory that processes of this service can have."""
    whole = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limits = (_number(value) for value in _group_values("memory", "memory.max", "memory.limit_in_bytes"))
    return min((whole, *filter(None, limits)))


def read_cpus() -> float:
    """Return the processors that processes of this service can have."""
    counts: list[float] = [float(os.cpu_count() or 1)]
    for value in _group_values("cpu", "cpu.max", None):
        quota, _, period = value.partition(" ")
        if (most := _number(quota)) is not None:
            counts.append(most / (_number(period) or 100_000))
    quotas = _group_values("cpu", None, "cpu.cfs_quota_us")
    periods = _group_values("cpu", None, "cpu.cfs_period_us")
    for quota, period in zip(quotas, periods, strict=False):
        if (most := _number(quota)) is not None:
            counts.append(most / (_number(period) or 100_000))
    return min(counts)


def _read_pids() -> int:
    with open("/proc/sys/kernel/pid_max", encoding="ascii") as file:
        most = int(file.read()) // PIDS_SHARE
    limits = (_number(value) for value in _group_values("pids", "pids.max", "pids.max"))
    return min((_MOST_PIDS, most, *filter(None, limits)))


def _read_disk(folder: str) -> int:
    at = os.statvfs(find_existing(folder))
    return at.f_blocks * at.f_frsize // DISK_SHARE


def find_existing(folder: str) -> str:
    """Return the folder, or the nearest one above it that exists."""
    folder = os.path.abspath(folder)
    while not os.path.isdir(folder):
        folder = os.path.dirname(folder)
    return folder


def _group_values(controller: str, name: str | None, name_v1: str | None) -> Iterator[str]:
    """Yield what a file holds in our control group and in each above it that can be seen."""
    # Where there are no control groups, or they cannot be seen, there is no limit.
    with contextlib.suppress(OSError):
        groups, mounts = cgroup_mounts.load_groups(), cgroup_mounts.load_mounts()
        v1 = [mount for mount in mounts if mount.fstype == "cgroup" and controller in mount.options]
        file = name_v1 if v1 else name
        path = groups.get(controller if v1 else "")
        if file is None or path is None:
            return
        top, folder = cgroup_mounts.locate(v1 or [mount for mount in mounts if mount.fstype == "cgroup2"], path)
        while True:
            with contextlib.suppress(OSError), open(os.path.join(folder, file), encoding="ascii") as stream:
                yield stream.read().strip()
            if len(folder) <= len(top):
                return
            folder = os.path.dirname(folder)


def _number(text: str) -> int | None:
    """Return a limit; None for `max`, and for -1, which says the same in v1."""
    return int(text) if text.isdigit() else None
