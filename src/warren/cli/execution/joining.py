"""A person at a terminal that is elsewhere: keys go in, output comes out, and the window's size is told."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING, Protocol

import anyio

from warren.cli.quick.standard_streams import write_all
from warren.cli.terminal.terminal import raw_mode, read_stdin, window_size

if TYPE_CHECKING:
    from collections.abc import Callable

DETACH = b"\x1d"
"""Ctrl-], twice: the first is typed like any other key, for programs know it too."""


class Joinable(Protocol):
    """A terminal in a sandbox of this machine, or of a service."""

    async def send(self, data: bytes, /) -> None:
        """Type something."""

    async def resize(self, cols: int, rows: int, /) -> None:
        """Say how large the window is."""

    async def receive(self) -> bytes:
        """Return what is shown next; nothing at the end."""


async def join(terminal: Joinable, *, can_detach: bool = False) -> bool:
    """Copy keys in and output out until the program ends; False when the person left it running before."""
    has_ended = True

    async def send_keys(leave: Callable[[], None]) -> None:
        nonlocal has_ended
        before = b""
        async for keys in read_stdin():
            if can_detach and DETACH * 2 in before + keys:
                has_ended = False
                leave()
                return
            before = keys[-1:]
            await terminal.send(keys)
        await terminal.send(b"\x04")

    async def follow_window() -> None:
        if not hasattr(signal, "SIGWINCH"):
            return
        with anyio.open_signal_receiver(signal.SIGWINCH) as changes:
            async for _ in changes:
                await terminal.resize(*window_size())

    with raw_mode():
        async with anyio.create_task_group() as group:
            group.start_soon(send_keys, group.cancel_scope.cancel)
            group.start_soon(follow_window)
            while data := await terminal.receive():
                write_all(1, data)
            group.cancel_scope.cancel()
    return has_ended
