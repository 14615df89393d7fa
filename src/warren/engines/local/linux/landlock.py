"""Landlock: a second check on files. Everything can be read; only paths below the named ones can be written.

The scopes of ABI 6 (abstract sockets, signals) are not used here: the network and pid namespaces of a sandbox already
hold nothing foreign. Inside, each execution gets a domain of its own (guest/system/landlock.py). Requests to devices
(ABI 5) stay allowed: terminals need them, there are few devices, and seccomp refuses the harmful ones. Reading and
executing are not restricted: the read-only mounts decide what can be read.
"""

from __future__ import annotations

import errno
import os
import stat
import struct
from typing import TYPE_CHECKING

from warren.engines.local.linux import syscalls

if TYPE_CHECKING:
    from collections.abc import Sequence

_CREATE_RULESET = 444
_ADD_RULE = 445
_RESTRICT_SELF = 446
_QUERY_VERSION = 1
_PATH_BENEATH = 1

_WRITE_FILE = 1 << 1
_REMOVE_DIR = 1 << 4
_REMOVE_FILE = 1 << 5
_MAKE_DIR = 1 << 7
_MAKE_REG = 1 << 8
_MAKE_SOCK = 1 << 9
_MAKE_FIFO = 1 << 10
_MAKE_SYM = 1 << 12
_MAKE_CHAR = 1 << 6
_MAKE_BLOCK = 1 << 11
_REFER = 1 << 13
_TRUNCATE = 1 << 14

_ON_FILES = _WRITE_FILE | _TRUNCATE
_ON_FOLDERS = (
    _ON_FILES | _REMOVE_DIR | _REMOVE_FILE | _MAKE_DIR | _MAKE_REG | _MAKE_SOCK | _MAKE_FIFO | _MAKE_SYM | _REFER
)
_NOWHERE = _MAKE_CHAR | _MAKE_BLOCK
"""Restricted and granted to no path: a sandbox may make devices nowhere."""

MINIMUM_ABI = 2
"""WHY: ABI 1 (before kernel 5.19) forbids every rename from one folder to another, which breaks ordinary programs."""
_TRUNCATE_ABI = 3
_SCOPE_ABI = 6


def abi() -> int:
    """Return the kernel's Landlock ABI version, 0 where there is none."""
    try:
        return syscalls.syscall(_CREATE_RULESET, "landlock_create_ruleset", None, 0, _QUERY_VERSION)
    except OSError:
        return 0


def describe_missing(version: int) -> str:
    """Return what a process that an execution left running can do to later ones, by the ABI version; "" for nothing."""
    if version < MINIMUM_ABI:
        return "a process that an execution left running can write to later executions: use kernel 5.19 or later"
    if version < _SCOPE_ABI:
        return "a process that an execution left running can signal later executions: use kernel 6.12 or later"
    return ""


def restrict(writable: Sequence[str]) -> None:
    """Let this process and all its descendants write and create only below the given paths, for good."""
    version = abi()
    if version < MINIMUM_ABI:
        raise OSError(errno.ENOSYS, f"Landlock ABI {MINIMUM_ABI} is needed, and this kernel has {version}")
    known = ~0 if version >= _TRUNCATE_ABI else ~_TRUNCATE
    handled = struct.pack("=Q", (_ON_FOLDERS | _NOWHERE) & known)
    ruleset = syscalls.syscall(_CREATE_RULESET, "landlock_create_ruleset", handled, len(handled), 0)
    try:
        for path in writable:
            _grant(ruleset, path, known)
        syscalls.prctl(syscalls.PR_SET_NO_NEW_PRIVS, 1)
        syscalls.syscall(_RESTRICT_SELF, "landlock_restrict_self", ruleset, 0)
    finally:
        os.close(ruleset)


def _grant(ruleset: int, path: str, known: int) -> None:
    place = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        folder = stat.S_ISDIR(os.fstat(place).st_mode)
        rule = struct.pack("=Qi", (_ON_FOLDERS if folder else _ON_FILES) & known, place)
        syscalls.syscall(_ADD_RULE, f"landlock_add_rule {path}", ruleset, _PATH_BENEATH, rule, 0)
    finally:
        os.close(place)
