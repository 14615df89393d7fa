"""The user's end of a terminal: input and output without blocking, raw mode, and the size of the window."""

from __future__ import annotations

import contextlib
import os
import sys
from typing import TYPE_CHECKING

import anyio
from anyio import to_thread

from warren.cli.quick.standard_streams import STDIN, is_in_background, read_stdin_now, write_in_steps

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator


async def read_stdin() -> AsyncIterator[bytes]:
    """Yield what comes on standard input, as it comes, until its end."""
    if sys.platform == "win32":
        # Its pipes and consoles cannot be waited for: a thread waits, and is left behind at the end.
        while data := await to_thread.run_sync(read_stdin_now, abandon_on_cancel=True):
            yield data
        return
    while not is_in_background():
        # Epoll refuses regular files and /dev/null, which never block.
        with contextlib.suppress(PermissionError):
            await anyio.wait_readable(STDIN)
        data = read_stdin_now()
        if not data:
            return
        yield data


async def write_patiently(fd: int, data: bytes) -> None:
    """Write bytes to a descriptor of ours; signals are still handled while the reader of a pipe does not read."""
    for _ in write_in_steps(fd, data):
        await anyio.wait_writable(fd)


@contextlib.contextmanager
def raw_mode() -> Iterator[None]:
    """Hand every key to the program inside, for the length of a block; nothing happens where no terminal is."""
    if not os.isatty(STDIN):
        yield
        return
    import termios
    import tty

    before = termios.tcgetattr(STDIN)
    try:
        # Not TCSAFLUSH, the default: it throws away what was typed ahead.
        tty.setraw(STDIN, termios.TCSADRAIN)
        yield
    finally:
        termios.tcsetattr(STDIN, termios.TCSADRAIN, before)


def window_size() -> tuple[int, int]:
    """Give columns and rows of the terminal; 80 by 24 where there is none."""
    try:
        size = os.get_terminal_size(STDIN)
    except OSError:
        return 80, 24
    return size.columns or 80, size.lines or 24
