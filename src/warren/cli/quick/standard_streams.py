"""Standard input and output of a command, as its program sees them."""

from __future__ import annotations

import contextlib
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


def read_source(file: str) -> bytes:
    """Return all of a file, or of standard input for `-`. Raises OSError."""
    parts = []
    with open(STDIN if file == "-" else file, "rb", buffering=0, closefd=file != "-") as source:
        while (part := source.read(_READ_BYTES)) != b"":
            if part is None:
                # Another process made this pipe non-blocking, and nothing has come yet.
                select.select([source], [], [])
            else:
                parts.append(part)
    return b"".join(parts)


def write_in_steps(fd: int, data: bytes) -> Iterator[None]:
    """Write bytes to a descriptor. Yields whenever its reader has to read first, for the caller to wait until then."""
    mode = os.fstat(fd).st_mode
    is_terminal = os.isatty(fd)
    if not (stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or is_terminal) or not hasattr(select, "poll"):
        write_all(fd, data)
        return
    with _unblocked(fd) if is_terminal else contextlib.nullcontext(fd) as target:
        poller = select.poll()
        poller.register(target, select.POLLOUT)
        view = memoryview(data)
        while view:
            if not poller.poll(0):
                yield
                continue
            try:
                # A pipe or a socket that has room has room for this much: more could block.
                view = view[os.write(target, view[: select.PIPE_BUF]) :]
            except BlockingIOError:
                yield


@contextlib.contextmanager
def _unblocked(terminal: int) -> Iterator[int]:
    """Open a terminal once more, non-blocking; as it is where that is refused, after `su` for example.

    WHY: a terminal that has room may have room for one character only. The flag would be the shell's too, which has the
    same open file.
    """
    try:
        opened = os.open(f"/proc/self/fd/{terminal}", os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError:
        yield terminal
        return
    try:
        yield opened
    finally:
        os.close(opened)


def write_all(fd: int, data: bytes) -> None:
    """Write bytes as they are to a descriptor of ours."""
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]
