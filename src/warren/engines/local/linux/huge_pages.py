"""Huge pages under the zygote's heap: a fork copies page tables, and one huge page has one entry for 512."""

from __future__ import annotations

import ctypes

_HUGE = 2 << 20
_MADV_COLLAPSE = 25
_RESERVED_BYTES = 128 << 20
_ARENA_BYTES = 1 << 20
"""The size of one of Python's arenas, for small objects."""
_OBJECT_BYTES = 512
_LARGE_BYTES = 4 << 20

_anchors: list[bytes | None] = []


def reserve_heap() -> None:
    """Reserve contiguous heap for later allocations, so that huge pages fit under it. Call it before importing.

    Libraries are mapped while modules are imported, and would lie between pieces of the heap.
    """
    libc = ctypes.CDLL(None)
    libc.malloc.restype = ctypes.c_void_p
    # WHY: the C library maps a large block apart, until one has been freed; from then on it puts smaller ones on its
    # heap.
    libc.free(ctypes.c_void_p(libc.malloc(ctypes.c_size_t(_LARGE_BYTES))))
    # WHY at once: a growing list is moved, and leaves gaps.
    filled: list[bytes | None] = [None] * (_RESERVED_BYTES // _OBJECT_BYTES)
    for index in range(len(filled)):
        filled[index] = bytes(_OBJECT_BYTES - 48)
    # One object in each arena keeps it; imports fill the rest.
    _anchors.extend(filled[:: _ARENA_BYTES // _OBJECT_BYTES - 64])


def collapse_heap() -> int:
    """Put the private, writable, anonymous memory of this process on huge pages; returns their number.

    Only existing memory is collapsed: huge pages for later allocations would make every sandbox's first page 2 MB.
    Halves the time of a fork. Kernel 6.1 or later; earlier ones refuse, harmlessly.
    """
    _anchors.clear()
    libc = ctypes.CDLL(None, use_errno=True)
    made = 0
    with open("/proc/self/maps", encoding="ascii", errors="replace") as maps:
        lines = maps.readlines()
    for line in lines:
        fields = line.split(maxsplit=5)
        if fields[1] != "rw-p" or (len(fields) > 5 and fields[5].strip() != "[heap]"):
            continue
        low, high = (int(part, 16) for part in fields[0].split("-"))
        low = (low + _HUGE - 1) & ~(_HUGE - 1)
        high &= ~(_HUGE - 1)
        if high <= low:
            continue
        for address in range(low, high, _HUGE):
            result = libc.madvise(ctypes.c_void_p(address), ctypes.c_size_t(_HUGE), _MADV_COLLAPSE)
            made += result == 0
    return made
