"""Forks that the standard library cannot make, and what a fork sets about itself: descriptors, privacy, its end.

Rules for changes to this file:
1. A raw clone runs no `pthread_atfork` handler and unlocks nothing: the caller has exactly one thread.
2. The interpreter is not notified of these forks: with one thread no lock of its own is held in the child, and the
   notification makes the child write to 240 pages, a millisecond. `announce` does it before user code runs.
3. Inside a kernel seccomp answers ENOSYS to clone3, so a kernel forks with clone.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import functools
import os
import signal
import threading
from typing import TYPE_CHECKING

from warren.guest.system import callbacks

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

CLONE_PIDFD = 0x1000
CLONE_PARENT = 0x8000
CLONE_CHILD_CLEARTID = 0x200000
CLONE_CHILD_SETTID = 0x1000000
CLONE_INTO_CGROUP = 0x200000000
LIVE_OOM_SCORE = 1000
KERNEL_OOM_SCORE = 900
"""A kernel holds variables, so of two processes of one size a program without any is killed first."""
FROZEN_OOM_SCORE = 0

_SYS_CLONE = {"x86_64": 56, "aarch64": 220}
_SYS_CLONE3 = 435
_SYS_CLOSE_RANGE = 436
_PR_SET_PDEATHSIG = 1
_PR_SET_DUMPABLE = 4
_LAST_FD = 0xFFFFFFFF
_TCB_BYTES = 2048

# PyDLL keeps the interpreter lock: the child must come out of the call holding it.
_libc = ctypes.PyDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long
_libc.pthread_self.restype = ctypes.c_void_p


_handlers: list[Callable[[], object]] = []
_is_recorded: list[bool] = []


class _CloneArgs(ctypes.Structure):
    """`struct clone_args` up to the cgroup field (Linux 5.7)."""

    _fields_ = [  # ctypes reads this exact attribute
        (name, ctypes.c_uint64)
        for name in (
            "flags",
            "pidfd",
            "child_tid",
            "parent_tid",
            "exit_signal",
            "stack",
            "stack_size",
            "tls",
            "set_tid",
            "set_tid_size",
            "cgroup",
        )
    ]


def fork_child() -> int:
    """Fork a child: 0 in the child, its pid here. Raises OSError."""
    return _fork_plain(0)


def fork_sibling() -> int:
    """Fork a child of our own parent: 0 in the child, its pid here. Raises OSError."""
    # WHY: CLONE_PARENT makes the agent the parent: it reaps the child, and user code's os.wait() never sees it.
    return _fork_plain(CLONE_PARENT)


def announce() -> None:
    """Notify the interpreter that this process is a fork: it runs the after-fork handlers of all modules now."""
    ctypes.pythonapi.PyOS_BeforeFork()
    ctypes.pythonapi.PyOS_AfterFork_Child()


@contextlib.contextmanager
def recording_handlers() -> Iterator[None]:
    """Record the after-fork handlers of modules that are imported in this block."""
    register = os.register_at_fork

    def note(**handlers: Callable[[], object]) -> None:
        register(**handlers)
        if "after_in_child" in handlers:
            _handlers.append(handlers["after_in_child"])

    os.register_at_fork = note  # type: ignore[assignment]  # the same, and recorded
    try:
        yield
    finally:
        os.register_at_fork = register
    _is_recorded.append(True)


def announce_to_imports() -> None:
    """Run the recorded after-fork handlers only; the interpreter's own locks cannot be held."""
    if not _is_recorded:
        announce()
        return
    threading.main_thread()._set_native_id()  # type: ignore[attr-defined]  # noqa: SLF001  # all that is out of date
    for handler in _handlers:
        with contextlib.suppress(Exception):
            handler()


def _fork_plain(flags: int) -> int:
    machine = os.uname().machine
    if machine not in _SYS_CLONE:
        raise OSError(errno.ENOSYS, f"Warren's guest runs on {' and '.join(_SYS_CLONE)}, not on {machine}")
    tid_flags, tid_address = _child_tid()
    # SAFE BECAUSE: without CLONE_VM the stack argument may be 0, and the caller has one thread (rule 1).
    flags |= tid_flags | signal.SIGCHLD
    # The two machines take tls and child_tid in opposite order.
    order = (0, tid_address) if machine == "aarch64" else (tid_address, 0)
    return _call([ctypes.c_long(value) for value in (_SYS_CLONE[machine], flags, 0, 0, *order)])


def clone(flags: int, cgroup_fd: int | None = None) -> tuple[int, int]:
    """Fork with clone3 into namespaces by `flags`, and into a cgroup: (0, -1) in the child, (pid, pidfd) here."""
    pidfd = ctypes.c_int(-1)
    tid_flags, tid_address = _child_tid()
    args = _CloneArgs(
        flags=flags | CLONE_PIDFD | tid_flags | (CLONE_INTO_CGROUP if cgroup_fd is not None else 0),
        pidfd=ctypes.addressof(pidfd),
        child_tid=tid_address,
        exit_signal=signal.SIGCHLD,
        cgroup=cgroup_fd if cgroup_fd is not None else 0,
    )
    # WHY: one call makes all namespaces and, on cgroup v2, starts the child inside its cgroup.
    # SAFE BECAUSE: `args` and `pidfd` outlive the call, and the caller has one thread (rule 1).
    pid = _call([ctypes.c_long(_SYS_CLONE3), ctypes.byref(args), ctypes.c_size_t(ctypes.sizeof(args))])
    return (pid, pidfd.value) if pid else (0, -1)


def close_all_but(fds: Iterable[int]) -> None:
    """Close every descriptor of this process except these and those of `callbacks`."""
    low = 0
    for fd in sorted({*fds, *callbacks.held()}):
        if fd > low:
            _close_range(low, fd - 1)
        low = fd + 1
    _close_range(low, _LAST_FD)


def set_dumpable(dumpable: bool) -> None:
    """Set whether processes of the same user may read this one (ptrace, /proc/…/fd, pidfd_getfd)."""
    _libc.prctl(_PR_SET_DUMPABLE, ctypes.c_ulong(dumpable), 0, 0, 0)


def die_with_parent() -> None:
    """Make the kernel kill this process when its parent ends; children do not inherit it."""
    _libc.prctl(_PR_SET_PDEATHSIG, ctypes.c_ulong(signal.SIGKILL), 0, 0, 0)


def set_oom_score(score: int, pid: int | None = None) -> None:
    """Set how readily the operating system kills a process, this one by default, when memory runs out."""
    # WHY: user code must die before the agent and before frozen copies. The write may be refused (a lower score than
    # at the start needs a capability on some systems); then the order is the kernel's own.
    with contextlib.suppress(OSError):
        fd = os.open(f"/proc/{'self' if pid is None else pid}/oom_score_adj", os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.write(fd, b"%d" % score)
        finally:
            os.close(fd)


def task_count() -> int:
    """Count the threads of this process, including those that Python did not start."""
    return len(os.listdir("/proc/self/task"))


def _call(arguments: Sequence[object]) -> int:
    pid = int(_libc.syscall(*arguments))
    if pid < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return pid


def _child_tid() -> tuple[int, int]:
    """Return the flags and the address with which the operating system updates the C library's thread id."""
    # WHY: the C library keeps the thread's id in its descriptor and updates it in its own fork only. Left stale, a
    # child's abort(), raise() or pthread_kill() signals the parent or fails.
    offset = _tid_offset()
    if offset is None:
        return 0, 0
    return CLONE_CHILD_SETTID | CLONE_CHILD_CLEARTID, _libc.pthread_self() + offset


@functools.cache
def _tid_offset() -> int | None:
    """Find the offset of the thread id in the thread descriptor; None when it is ambiguous."""
    base = _libc.pthread_self()
    # SAFE BECAUSE: the descriptor is larger than this in every C library, and memory after the main thread's is mapped.
    words = (ctypes.c_uint32 * (_TCB_BYTES // 4)).from_address(base)
    pointers = (ctypes.c_uint64 * (_TCB_BYTES // 8)).from_address(base)
    tid = threading.get_native_id()
    found = [4 * index for index in range(len(words)) if words[index] == tid]
    # A small id (process 1) is found in many places. In glibc the list of robust mutexes follows it, which is empty and
    # so points at itself.
    certain = [
        offset
        for offset in found
        if offset % 8 == 0 and offset + 24 <= _TCB_BYTES and pointers[offset // 8 + 2] == base + offset + 16
    ]
    candidates = certain or found
    return candidates[0] if len(candidates) == 1 else None


def _close_range(first: int, last: int) -> None:
    if _libc.syscall(*(ctypes.c_long(value) for value in (_SYS_CLOSE_RANGE, first, last, 0))) == 0:
        return
    # Before Linux 5.9, or refused: by name, from a listing that is complete before the first is closed.
    for name in os.listdir("/proc/self/fd"):
        if first <= int(name) <= last:
            try:
                os.close(int(name))
            except OSError:
                continue
