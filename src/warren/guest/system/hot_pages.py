"""The pages that a kernel writes to in every cell: copied in the idle gap after a checkpoint, not in the next cell.

A frozen copy shares all pages with its kernel, so the first write to each makes another. Which pages those are shows
from one checkpoint to the next: what the copy does not share any more was written to in between.
"""

from __future__ import annotations

import array
import ctypes
import os

MAX_PAGES = 1024
"""More is not the interpreter at work but data, and not worth holding twice."""
_FIRST, _LAST = 3, 4
"""The checkpoints before which we look: first cells load things, and who runs one may never run another."""
_MAX_MAPPING = 128 << 20
_MAX_SEEN = 256 << 20
"""Beyond that, looking takes longer than it will ever save."""
_PAGE = os.sysconf("SC_PAGE_SIZE")
_ENTRY_BYTES = 8
_KINDS = 0xA1 << 56
"""Of an entry of /proc/self/pagemap: is there, belongs to a file, is mapped by nobody else."""
_OWN = 0x81 << 56
_POPULATE_WRITE = 23

_libc = ctypes.PyDLL(None)


class HotPages:
    """Finds out, over the first cells, what each of them writes to."""

    def __init__(self) -> None:
        self._checkpoints = 0
        self._view: _View | None = None
        self._before: bytes | None = None
        """What the last cell that is looked at began with."""
        self._written: set[int] | None = None
        self._ranges: list[tuple[int, int]] = []

    def begin(self) -> None:
        """Note what is our own when a cell begins, without its doing. Call it before each; nearly all cost nothing."""
        if self._view is None or self._checkpoints != _LAST - 1:
            return
        try:
            self._before = self._view.read()
        except (OSError, ValueError):
            self._view = None

    def observe(self) -> None:
        """Look at what was written to since the last checkpoint. Call it right before the next."""
        self._checkpoints += 1
        if self._checkpoints > _LAST:
            return
        try:
            if self._checkpoints == _FIRST - 1:
                self._view = _View()
            elif self._view is not None:
                seen = self._view.find_own(self._view.read())
                self._written = seen if self._written is None else self._written & seen
        except (OSError, ValueError):
            self._view = None
        if self._checkpoints == _LAST:
            if self._view is not None and self._written and self._before is not None:
                self._choose(self._written - self._view.find_own(self._before))
            self._view = self._written = self._before = None

    def _choose(self, pages: set[int]) -> None:
        if len(pages) <= MAX_PAGES:
            self._ranges = _join(pages)

    def touch(self) -> None:
        """Have pages of our own there. Call it right after a checkpoint."""
        madvise = _libc.madvise
        for address, size in self._ranges:
            # Kernels before 5.14 do not know it, and user code may have unmapped one: then the next cell pays for all.
            if madvise(ctypes.c_void_p(address), ctypes.c_size_t(size), _POPULATE_WRITE):
                self._ranges = []
                return


class _View:
    """The private memory of this process, listed ahead: looking at it must not write to much."""

    def __init__(self) -> None:
        self._spans: list[tuple[int, int, int]] = []
        at = 0
        with open("/proc/self/maps", "rb") as maps:
            for line in maps.read().splitlines():
                span, mode, _rest = line.split(b" ", 2)
                low, _, high = span.partition(b"-")
                first, size = int(low, 16), int(high, 16) - int(low, 16)
                if mode == b"rw-p" and size <= _MAX_MAPPING:
                    self._spans.append((first, at, size // _PAGE * _ENTRY_BYTES))
                    at += size // _PAGE * _ENTRY_BYTES
        if at > _MAX_SEEN // _PAGE * _ENTRY_BYTES:
            raise ValueError("too much memory to look at")
        self._room = bytearray(at)

    def read(self) -> bytes:
        """Read what the kernel says of each page now."""
        room = memoryview(self._room)
        fd = os.open("/proc/self/pagemap", os.O_RDONLY | os.O_CLOEXEC)
        try:
            for first, at, size in self._spans:
                os.preadv(fd, [room[at : at + size]], first // _PAGE * _ENTRY_BYTES)
        finally:
            os.close(fd)
        return bytes(room)

    def find_own(self, read: bytes) -> set[int]:
        """List the pages that no other process had when that was read."""
        found: set[int] = set()
        for first, at, size in self._spans:
            entries = array.array("Q", read[at : at + size])
            found.update(first + index * _PAGE for index, entry in enumerate(entries) if entry & _KINDS == _OWN)
        return found


def _join(pages: set[int]) -> list[tuple[int, int]]:
    """Make ranges of pages, as address and length."""
    ranges: list[tuple[int, int]] = []
    for page in sorted(pages):
        # One between two costs less than another call.
        if ranges and page - sum(ranges[-1]) <= _PAGE:
            ranges[-1] = (ranges[-1][0], page + _PAGE - ranges[-1][0])
        else:
            ranges.append((page, _PAGE))
    return ranges
