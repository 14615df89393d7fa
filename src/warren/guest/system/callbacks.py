"""The descriptor of libffi: libffi maps the code of callbacks from a file, by a number that it remembers for ever.

Where that number is closed or reused, `ctypes` cannot make callbacks any more, or makes wrong ones. So it is moved
above all numbers that are given out, and forks leave it open.

Rule 1: nothing is left open but a file with a name, for reading. Where libffi cannot find its own library it writes the
   code into memory, which one sandbox could change for all others: that is closed, and there are no callbacks.
Rule 2: a sandbox opens it from its own file tree.
"""

from __future__ import annotations

import fcntl
import os
import sys

_PLACE = 64
"""Above all numbers at which processes get descriptors."""
_held: dict[int, str] = {}


def settle() -> None:
    """Make libffi open its file at a high number. Call it before anything imports `ctypes`; later it does nothing."""
    if "_ctypes" in sys.modules:
        return
    taken = [os.open("/dev/null", os.O_RDONLY | os.O_CLOEXEC)]
    while taken[-1] < _PLACE - 1:
        taken.append(os.dup(taken[-1]))
    following = os.dup(taken[-1])
    os.close(following)
    try:
        import ctypes  # the first import is what opens it

        # Not all versions open it at import.
        ctypes.CFUNCTYPE(None)(int)
        _hold(following)
    finally:
        for fd in taken:
            os.close(fd)


def held() -> list[int]:
    """Return the descriptors that forks must leave open; none where libffi needs no file."""
    return list(_held)


def reopen() -> None:
    """Open the held files again, from the current file tree."""
    for fd, path in _held.items():
        own = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        os.dup2(own, fd, inheritable=False)
        os.close(own)


def _hold(fd: int) -> None:
    try:
        mode = fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_ACCMODE
    except OSError:
        return
    path = os.readlink(f"/proc/self/fd/{fd}")
    if mode == os.O_RDONLY and os.path.isfile(path):
        # Older versions leave it inheritable by every program.
        os.set_inheritable(fd, False)
        _held[fd] = path
