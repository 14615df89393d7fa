"""The person's end of a terminal: standard input without blocking, raw mode, and the size of the window."""

from __future__ import annotations

import contextlib
import os
import termios
import tty
from typing import TYPE_CHECKING

import anyio

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

STDIN = 0


async def read_stdin() -> AsyncIterator[bytes]:
    """Yield what comes on standard input, as it comes, until its end."""
    while not _is_in_background():
        # Epoll refuses regular files and /dev/null, which never block.
        with contextlib.suppress(PermissionError):
            await anyio.wait_readable(STDIN)
        try:
            data = os.read(STDIN, 1 << 16)
        except OSError:
            return
        if not data:
            return
        yield data


def _is_in_background() -> bool:
    """Whether reading would stop us: the terminal belongs to another job."""
    try:
        return os.isatty(STDIN) and os.tcgetpgrp(STDIN) != os.getpgrp()
    except OSError:
        return False


@contextlib.contextmanager
def raw_mode() -> Iterator[None]:
    """Hand every key to the program inside, for the length of a block; nothing happens where no terminal is."""
    if not os.isatty(STDIN):
        yield
        return
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
