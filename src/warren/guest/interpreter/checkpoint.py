"""Checkpoint: a frozen copy of a kernel, made in the idle gap after a cell; it wakes up with the variables of then.

Only Python memory comes back. Files, their offsets, child processes, sockets and threads are shared with, or died
with, the kernel that was copied. The state of `random` comes back too: it is a variable like any other.
"""

from __future__ import annotations

import gc
import os
import random
import socket
import stat
import threading
import time
from typing import TYPE_CHECKING

from warren.guest.interpreter import child_setup
from warren.guest.system import forking, reseed
from warren.guest.wire.frames import ProtocolError

if TYPE_CHECKING:
    from warren.guest.wire.control import Control
    from warren.guest.wire.frames import Header

_FIRST_PAUSE_S = 0.0005
_LAST_PAUSE_S = 0.05
_PAGE = os.sysconf("SC_PAGE_SIZE")
_STANDARD_MAJORS = frozenset({1, 4, 5, *range(136, 144)})
"""Memory devices such as null and urandom; terminals."""
_lasting = 1
"""Threads at the last count."""


def resident_bytes() -> int:
    """Return the anonymous memory of this process, including pages still shared with its parent."""
    with open("/proc/self/statm", "rb") as file:
        fields = file.read().split()
    return (int(fields[1]) - int(fields[2])) * _PAGE


def find_obstacle(private_bytes: int, limit_bytes: int | None) -> str | None:
    """Return why no copy can be made now; None when it can."""
    device = _find_device()
    if device is not None:
        return f"the device {device} is open, and what its driver holds cannot be copied"
    tasks = _count_tasks()
    if tasks > 1:
        return f"{tasks} threads are running, and a copy would have only one"
    if limit_bytes is not None and private_bytes > limit_bytes:
        return f"{private_bytes >> 20} MiB of memory are in use, more than the {limit_bytes >> 20} MiB that are copied"
    return None


def _find_device() -> str | None:
    """Return an open device other than the standard ones: in a sandbox, a GPU."""
    # WHY: a copy would share the driver's context with the kernel, and each would destroy the state of the other.
    for name in os.listdir("/proc/self/fd"):
        try:
            found = os.fstat(int(name))
            if stat.S_ISCHR(found.st_mode) and os.major(found.st_rdev) not in _STANDARD_MAJORS:
                return os.readlink(f"/proc/self/fd/{name}")
        except OSError:
            continue  # The folder's own descriptor, closed by now.
    return None


def _count_tasks() -> int:
    """Count the threads; waits for joined ones, which are still listed for a moment."""
    global _lasting  # noqa: PLW0603 - one count a process, and every object more is a page more in each copy
    tasks, pause = forking.task_count(), _FIRST_PAUSE_S
    # Not again for threads that stayed the last time: libraries keep threads of their own.
    while tasks not in (1, _lasting) and threading.active_count() == 1 and pause < _LAST_PAUSE_S:
        time.sleep(pause)
        tasks, pause = forking.task_count(), 2 * pause
    _lasting = tasks
    return tasks


def freeze(control: Control, header: Header, *, renew: bool) -> Header | None:
    """Make a frozen copy and send it to the agent with `header`.

    Returns None in the kernel that goes on, and the `wake` frame's header in the copy, once it is woken: `control` is
    then the copy's own. With `renew` the copy draws its own random values. Raises OSError when there is no room for
    another process or socket.
    """
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    # Python reseeds `random` after a fork; the copy restores its state.
    state = random.getstate()
    try:
        pid = forking.fork_sibling()
    except OSError:
        ours.close()
        theirs.close()
        raise
    if pid:
        theirs.close()
        with ours:
            control.send({**header, "t": "frozen", "pid": pid}, fds=[ours.fileno()])
        return None
    ours.close()
    wake = _sleep(control, theirs)
    forking.announce()
    if renew:
        reseed.renew_randomness()
    else:
        random.setstate(state)
    return wake


def _sleep(control: Control, own: socket.socket) -> Header:
    """Stay frozen: hold memory, run nothing. Returns when the agent sends `wake`."""
    # Its own group: signals to the live kernel and its children must not reach the copy.
    os.setsid()
    os.dup2(own.fileno(), control.fileno(), inheritable=False)
    own.close()
    collecting = gc.isenabled()
    # A collection would write to every object, and so copy every page shared with the live kernel.
    gc.disable()
    child_setup.settle(forking.FROZEN_OOM_SCORE)
    try:
        # WHY: every line that runs in a copy costs it pages, and most copies are never woken.
        control.wait()
        frame = control.receive()
        control.take_fds(0)
    except (OSError, ProtocolError):
        frame = None
    if frame is None or frame[0]["t"] != "wake":
        os._exit(0)
    forking.set_oom_score(forking.KERNEL_OOM_SCORE)
    if collecting:
        gc.enable()
    return frame[0]
