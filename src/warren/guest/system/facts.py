"""Facts: counters of the operating system about this sandbox, read from descriptors that the engine opened."""

from __future__ import annotations

import os
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Counts:
    """Counters that only rise; None where this host does not count."""

    oom_kills: int | None
    pids_refused: int | None


@dataclass(frozen=True, slots=True)
class Disk:
    """A filesystem that user code can write to."""

    path: str
    total_bytes: int
    free_bytes: int
    free_inodes: int | None

    @property
    def full(self) -> bool:
        """Whether practically no bytes or inodes are left."""
        return self.out_of_bytes or (self.free_inodes is not None and self.free_inodes < 4)

    @property
    def out_of_bytes(self) -> bool:
        """Whether a large write would fail: ext4 refuses it while it still reports most of a megabyte as free."""
        return self.free_bytes < min(1 << 20, self.total_bytes // 16)


class Facts:
    """Reads counters by name: `memory_oom memory_peak memory_now pids_events pids_now`; any may be missing."""

    def __init__(self, descriptors: dict[str, int], workspace: str) -> None:
        self._descriptors = descriptors
        self._workspace = workspace

    def counts(self) -> Counts:
        """Read the counters of refused and killed processes."""
        return Counts(self._field("memory_oom", b"oom_kill"), self._field("pids_events", b"max"))

    def read(self, name: str) -> int | None:
        """Read a counter file that holds one number: bytes, or tasks."""
        return _parse(self._read(name))

    def disks(self) -> list[Disk]:
        """Measure the workspace and the temporary folder."""
        found = []
        for path in (self._workspace, "/tmp"):
            try:
                at = os.statvfs(path)
            except OSError:
                continue
            inodes = at.f_favail if at.f_files else None
            found.append(Disk(path, at.f_blocks * at.f_frsize, at.f_bavail * at.f_frsize, inodes))
        return found

    def _field(self, name: str, field: bytes) -> int | None:
        """Find `field N` among the lines of a counter file."""
        for line in self._read(name).splitlines():
            key, _, value = line.partition(b" ")
            if key == field:
                return _parse(value)
        return None

    def _read(self, name: str) -> bytes:
        fd = self._descriptors.get(name)
        if fd is None:
            return b""
        try:
            return os.pread(fd, 4096, 0)
        except OSError:
            return b""


def _parse(text: bytes) -> int | None:
    try:
        return int(text)
    except ValueError:
        return None
