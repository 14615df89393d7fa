"""Hot pages: those that a kernel writes in every cell, copied in the idle gap after a checkpoint, not in the next cell.

A frozen copy shares all pages with its kernel, so the first write to each copies it. The difference of two checkpoints
shows which pages those are: a page that the copy does not share any more was written in between.
"""

from __future__ import annotations

import array
import ctypes
import os

MAX_PAGES = 1024
"""Above this, the pages are data and not the interpreter, and not worth holding twice."""
_FIRST, _LAST = 3, 4
"""The checkpoints before which pages are read: first cells load modules, and many kernels run one cell only."""
_MAX_MAPPING = 128 << 20
_MAX_SEEN = 256 << 20
"""Above this, reading takes longer than it saves."""
_PAGE = os.sysconf("SC_PAGE_SIZE")
_ENTRY_BYTES = 8
_KINDS = 0xA1 << 56
"""Bits of an entry of /proc/self/pagemap: present, file-mapped, exclusively mapped."""
_OWN = 0x81 << 56
_POPULATE_WRITE = 23

_libc = ctypes.PyDLL(None)


class HotPages:
    """Finds, over the first cells, the pages that each of them writes."""

    def __init__(self) -> None:
        self._checkpoints = 0
        self._view: _View | None = None
        self._before: bytes | None = None
        """The pagemap when the last observed cell began."""
        self._written: set[int] | None = None
        self._ranges: list[tuple[int, int]] = []

    def begin(self) -> None:
        """Record the private pages when a cell begins. Call it before each cell; nearly all calls cost nothing."""
        if self._view is None or self._checkpoints != _LAST - 1:
            return
        try:
            self._before = self._view.read()
        except (OSError, ValueError):
            self._view = None

    def observe(self) -> None:
        """Find the pages written since the last checkpoint. Call it right before the next."""
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
                pages = self._written - self._view.find_own(self._before)
                self._ranges = _join(pages) if len(pages) <= MAX_PAGES else []
            self._view = self._written = self._before = None

    def touch(self) -> None:
        """Copy the hot pages. Call it right after a checkpoint."""
        madvise = _libc.madvise
        for address, size in self._ranges:
            # Linux before 5.14 does not know it, and user code may have unmapped one: then the next cell copies them.
            if madvise(ctypes.c_void_p(address), ctypes.c_size_t(size), _POPULATE_WRITE):
                self._ranges = []
                return


class _View:
    """The private memory of this process, listed ahead: reading it must write few pages."""

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
        """Read the pagemap entries now."""
        room = memoryview(self._room)
        fd = os.open("/proc/self/pagemap", os.O_RDONLY | os.O_CLOEXEC)
        try:
            for first, at, size in self._spans:
                os.preadv(fd, [room[at : at + size]], first // _PAGE * _ENTRY_BYTES)
        finally:
            os.close(fd)
        return bytes(room)

    def find_own(self, read: bytes) -> set[int]:
        """List the pages that no other process shared at that reading."""
        found: set[int] = set()
        for first, at, size in self._spans:
            entries = array.array("Q", read[at : at + size])
            found.update(first + index * _PAGE for index, entry in enumerate(entries) if entry & _KINDS == _OWN)
        return found


def _join(pages: set[int]) -> list[tuple[int, int]]:
    """Join pages to ranges of address and length."""
    ranges: list[tuple[int, int]] = []
    for page in sorted(pages):
        # One extra page between two costs less than another call.
        if ranges and page - sum(ranges[-1]) <= _PAGE:
            ranges[-1] = (ranges[-1][0], page + _PAGE - ranges[-1][0])
        else:
            ranges.append((page, _PAGE))
    return ranges
