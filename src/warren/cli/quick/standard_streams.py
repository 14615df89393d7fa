"""Standard input and output of a command, as its program sees them."""

from __future__ import annotations

import os
import select
import stat

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

STDIN = 0
_READ_BYTES = 1 << 16


def read_stdin_now() -> bytes:
    """Return what standard input has, which blocks while it has nothing; nothing at its end."""
    try:
        return b"" if is_in_background() else os.read(STDIN, _READ_BYTES)
    except OSError:
        return b""


def is_in_background() -> bool:
    """Whether a read would stop this process: the terminal belongs to another job."""
    if not hasattr(os, "tcgetpgrp"):
        return False
    try:
        return os.isatty(STDIN) and os.tcgetpgrp(STDIN) != os.getpgrp()
    except OSError:
        return False


def read_program() -> str | None:
    """Return all of standard input as text; where it is no text, None, and standard input can be read again."""
    parts = []
    while part := os.read(STDIN, _READ_BYTES):
        parts.append(part)
    data = b"".join(parts)
    try:
        return data.decode()
    except UnicodeDecodeError:
        with open(os.memfd_create("stdin"), "wb", buffering=0) as again:
            write_all(again.fileno(), data)
            os.lseek(again.fileno(), 0, os.SEEK_SET)
            os.dup2(again.fileno(), STDIN)
        return None


def write_in_steps(fd: int, data: bytes) -> Iterator[None]:
    """Write bytes to a descriptor. Yields whenever a pipe is full, for the caller to wait until it may have room."""
    if not stat.S_ISFIFO(os.fstat(fd).st_mode) or not hasattr(select, "poll"):
        write_all(fd, data)
        return
    poller = select.poll()
    poller.register(fd, select.POLLOUT)
    view = memoryview(data)
    while view:
        if poller.poll(0):
            # A pipe that has room has room for this much: more could block.
            view = view[os.write(fd, view[: select.PIPE_BUF]) :]
        else:
            yield


def write_all(fd: int, data: bytes) -> None:
    """Write bytes as they are to a descriptor of ours."""
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]
