"""The file that libffi holds open: it maps the code of callbacks from it, by a number that it remembers for ever.

Where that number is closed or becomes something else, `ctypes` cannot make callbacks any more, or makes wrong ones. So
it is put where nobody places descriptors, and forks leave it open.

Rule 1: nothing is left open but a file with a name, for reading. Where libffi cannot find its own library it writes the
   code into memory, which one sandbox could change for all others: that is closed, and there are no callbacks.
Rule 2: a sandbox has it from its own file tree.
"""

from __future__ import annotations

import fcntl
import os
import sys

_PLACE = 64
"""Above all numbers that processes are given descriptors at."""
_held: dict[int, str] = {}


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
        _hold(following)
    finally:
        for fd in taken:
            os.close(fd)


def held() -> list[int]:
    """Return the descriptors that forks must leave open; none where libffi needs no file."""
    return list(_held)


def reopen() -> None:
    """Have what is held from the file tree that this process has by now."""
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
        # Older ones hand it to every program that is started.
        os.set_inheritable(fd, False)
        _held[fd] = path
