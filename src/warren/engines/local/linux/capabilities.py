"""Capabilities: drop all of them, or all but a few, for good."""

from __future__ import annotations

import ctypes
import functools
import struct
from typing import TYPE_CHECKING

from warren.engines.local.linux import syscalls

if TYPE_CHECKING:
    from collections.abc import Iterable

SETGID, SETUID, SYS_ADMIN, SETFCAP = 6, 7, 21, 31

_VERSION_3 = 0x20080522
_SECUREBITS_LOCKED = 0b1110_1111
"""No capabilities for uid 0, none kept over a change of uid, no ambient ones; each locked."""

_libc = ctypes.CDLL(None, use_errno=True)


def drop_all() -> None:
    """Empty the bounding, ambient, effective, permitted and inheritable sets. Raises OSError when one cannot be."""
    # All of them, if the first is there: reading each takes as long as dropping it.
    bounding = range(count()) if syscalls.prctl(syscalls.PR_CAPBSET_READ, 0) else _bounding()
    # WHY: both need CAP_SETPCAP, so they come before the sets that hold it are emptied. An empty bounding set means
    # that this has run before.
    if bounding:
        syscalls.prctl(syscalls.PR_SET_SECUREBITS, _SECUREBITS_LOCKED)
        for number in bounding:
            syscalls.prctl(syscalls.PR_CAPBSET_DROP, number)
    syscalls.prctl(syscalls.PR_CAP_AMBIENT, syscalls.PR_CAP_AMBIENT_CLEAR_ALL)
    syscalls.check(_libc.capset(_header(), bytes(24)), "capset to nothing")


def bound_to(kept: Iterable[int]) -> None:
    """Drop all but `kept` from the bounding set: a program of uid 0 that is executed now gets no others."""
    for number in set(_bounding()) - set(kept):
        syscalls.prctl(syscalls.PR_CAPBSET_DROP, number)


def effective() -> int:
    """Return the capabilities in force for this thread, as bits."""
    data = ctypes.create_string_buffer(24)
    syscalls.check(_libc.capget(_header(), data), "capget")
    words = struct.unpack("6I", data.raw)
    return int(words[0] | words[3] << 32)


def _header() -> bytes:
    return struct.pack("Ii", _VERSION_3, 0)


def _bounding() -> list[int]:
    return [number for number in range(count()) if syscalls.prctl(syscalls.PR_CAPBSET_READ, number)]


@functools.cache
def count() -> int:
    """Count the capabilities that this kernel knows."""
    for number in range(64):
        try:
            syscalls.prctl(syscalls.PR_CAPBSET_READ, number)
        except OSError:
            return number
    return 64
