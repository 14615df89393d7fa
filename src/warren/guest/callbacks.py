"""The file that libffi holds open: it maps the code of callbacks from it, by a number that it remembers for ever.

Where that number is closed or becomes something else, `ctypes` cannot make callbacks any more, or makes wrong ones. So
it is put where nobody places descriptors, and forks leave it open. It is libffi's own library, read-only.
"""

from __future__ import annotations

import fcntl
import os
import sys

_PLACE = 64
"""Above all numbers that processes are given descriptors at."""
_held: list[int] = []


def settle() -> None:
    """Have libffi open its file, out of the way. Call it before anything imports `ctypes`; later it does nothing."""
    if "_ctypes" in sys.modules:
        return
    taken = [os.open("/dev/null", os.O_RDONLY | os.O_CLOEXEC)]
    while taken[-1] < _PLACE - 1:
        taken.append(os.dup(taken[-1]))
    following = os.dup(taken[-1])
    os.close(following)
    try:
        import ctypes  # the first import is what opens it

        # Not all versions of it make one when they are imported.
        ctypes.CFUNCTYPE(None)(int)
        if _is_open(following):
            # Older ones hand it to every program that is started.
            fcntl.fcntl(following, fcntl.F_SETFD, fcntl.FD_CLOEXEC)
            _held.append(following)
    finally:
        for fd in taken:
            os.close(fd)


def held() -> list[int]:
    """Return the descriptors that forks must leave open; none where libffi needs no file, as most do not."""
    return _held


def _is_open(fd: int) -> bool:
    try:
        fcntl.fcntl(fd, fcntl.F_GETFD)
    except OSError:
        return False
    return True
