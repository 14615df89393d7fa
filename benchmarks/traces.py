"""What sandboxes leave on a host: processes, mounts, loop devices, control groups and files, by looking."""

from __future__ import annotations

import glob
import os
from dataclasses import dataclass, fields

from warren.engines.local.spawn import group_name

BACKING_FILES = "/sys/block/loop*/loop/backing_file"


@dataclass(frozen=True, slots=True)
class Traces:
    """Counts of what one engine's data folder is responsible for."""

    processes: int
    mounts: int
    loop_devices: int
    groups: int
    files: int

    def __str__(self) -> str:
        return ", ".join(f"{getattr(self, field.name)} {field.name.replace('_', ' ')}" for field in fields(self))


def look(folder: str) -> Traces:
    """Count what is there now.

    The zygote and the group it waits in are counted too, before as after, and so are the processes and the group that
    are ready for the next sandbox once there was a pause; what is ready on disk is not.
    """
    local = os.path.join(os.path.realpath(folder), "local")
    group = f"/{group_name(local)}/"
    return Traces(
        processes=sum(_is_in(f"/proc/{pid}/cgroup", group) for pid in os.listdir("/proc") if pid.isdigit()),
        mounts=_count_lines("/proc/self/mountinfo", local),
        loop_devices=sum(
            _is_in(path, f"{local}/sandboxes/") for path in glob.glob("/sys/block/loop*/loop/backing_file")
        ),
        groups=sum(1 for base, _, _ in os.walk("/sys/fs/cgroup") if group in base),
        files=sum(len(names) + len(folders) for _, folders, names in os.walk(os.path.join(local, "sandboxes"))),
    )


def _is_in(path: str, text: str) -> bool:
    return _count_lines(path, text) > 0


def _count_lines(path: str, text: str) -> int:
    try:
        with open(path, encoding="utf-8", errors="surrogateescape") as file:
            return sum(text in line for line in file)
    except OSError:
        return 0  # It ended while we looked.
