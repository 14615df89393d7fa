"""Landlock domains: each execution has its own, so that processes of other executions cannot write to it or trace it.

1. A process reaches memory and descriptors of another (/proc/PID/mem, /proc/PID/fd, ptrace) only in its own domain and
   in those below. The agent is above all executions, which are beside each other.
2. A domain may also confine signals (kernel 6.12). The domain of the sender decides, so it holds what the processes of
   an execution do to others, not what others do to them.
3. No file is restricted: the one right that a ruleset must name, to move files between folders, is granted everywhere.
"""

from __future__ import annotations

import _thread
import ctypes
import errno
import os
import struct
from typing import TYPE_CHECKING, TypeVar

from warren.guest.system import forking

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")

_CREATE_RULESET = 444
_ADD_RULE = 445
_RESTRICT_SELF = 446
_PATH_BENEATH = 1
_REFER = 1 << 13
"""WHY this right: each ruleset that does not grant it denies it, whether named or not (kernel 5.19)."""
_SCOPE_SIGNAL = 1 << 1

_libc = ctypes.PyDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long
_rulesets: list[int] = []
"""Descriptors of the ruleset of an ordinary domain, and of one that confines signals; empty where there are none."""


def prepare() -> None:
    """Open the rulesets. Where the kernel has no Landlock, `enter` does nothing: the engine reports that."""
    if not _rulesets:
        try:
            own = _create(0)
        except OSError:
            return
        try:
            alone = _create(_SCOPE_SIGNAL)
        except OSError:
            alone = own  # Before kernel 6.12, signals cannot be confined.
        _rulesets.extend((own, alone))


def held() -> list[int]:
    """List the open rulesets."""
    return _rulesets


def enter(*, alone: bool = False) -> None:
    """Put this thread, and all processes that it starts from now on, into a new domain. Raises OSError.

    `alone`: they signal only each other.
    """
    if _rulesets:
        _call(_RESTRICT_SELF, _rulesets[alone], 0)


def call_inside(act: Callable[[], T], *, alone: bool = False) -> T:
    """Call `act` in a new domain, in which the processes that it starts stay. Raises what `act` raises, and OSError."""
    # WHY a thread: a domain is a property of a thread and cannot be left. A fork would take ten times as long as the
    # vfork of `subprocess`, which a thread can use.
    if not _rulesets:
        return act()
    results: list[T] = []
    failures: list[BaseException] = []
    running = _thread.allocate_lock()
    running.acquire()

    def work() -> None:
        try:
            enter(alone=alone)
            results.append(act())
        except BaseException as error:  # raised again by the caller
            failures.append(error)
        finally:
            running.release()

    try:
        _thread.start_new_thread(work, ())
    except RuntimeError:
        raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN)) from None
    running.acquire()
    # SAFE BECAUSE: a fork by a process with two threads would copy locks of the C library that the other holds.
    while forking.task_count() > 1:
        os.sched_yield()
    if failures:
        raise failures[0]
    return results[0]


def _create(scoped: int) -> int:
    attributes = struct.pack("=QQQ", _REFER, 0, scoped)
    ruleset = _call(_CREATE_RULESET, attributes, len(attributes), 0)
    root = os.open("/", os.O_PATH | os.O_CLOEXEC)
    try:
        _call(_ADD_RULE, ruleset, _PATH_BENEATH, struct.pack("=Qi", _REFER, root), 0)
    except OSError:
        os.close(ruleset)
        raise
    finally:
        os.close(root)
    return ruleset


def _call(number: int, *arguments: int | bytes) -> int:
    # The upper half of a bare int would be undefined: syscall() is variadic.
    passed = [ctypes.c_long(value) if isinstance(value, int) else ctypes.c_char_p(value) for value in arguments]
    result = int(_libc.syscall(ctypes.c_long(number), *passed))
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result
