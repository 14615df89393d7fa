"""A person at the terminal of a sandbox: one that stays, or one that a service makes for the length of it."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from typing import TYPE_CHECKING, Any

import anyio

from warren.cli.quick.standard_streams import write_all
from warren.cli.service.connection import find_sandbox, run_with_client
from warren.cli.terminal.terminal import raw_mode, read_stdin, window_size

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from warren import AsyncClient, AsyncSandbox, AsyncTerminal
    from warren.cli.options import Target
    from warren.cli.terminal.signals import Signals
    from warren.core.agent.terminals import Terminal

DETACH = b"\x1d"
"""Ctrl-], twice: the first is typed like any other key, for programs know it too."""
START_PYTHON = """exec python -c '
import os, sys
try:
    from IPython import start_ipython
except ImportError:
    os.execvp("python", ["python", "-q"])
sys.exit(start_ipython(argv=["--no-banner", "--no-confirm-exit"]))'"""
"""IPython where the image has it, for its editing and completion; the plain prompt where not."""


def attach(target: Target, sandbox: str | None, terminal: str, *, python: bool, options: dict[str, Any]) -> int:
    """Join a terminal, and leave with the exit code of its program, or with 0 when it runs on."""

    async def work(client: AsyncClient, _signals: Signals) -> int:
        async with _place(client, target, sandbox, options) as place:
            return await _join(place, terminal, python=python, stays=sandbox is not None)

    return run_with_client(target, work)


@contextlib.asynccontextmanager
async def _place(
    client: AsyncClient, target: Target, sandbox: str | None, options: dict[str, Any]
) -> AsyncIterator[AsyncSandbox]:
    if sandbox is None:
        async with client.sandbox(**options) as made:
            yield made
    else:
        yield await find_sandbox(client, target, sandbox, to_use=True)


async def _join(place: AsyncSandbox, name: str, *, python: bool, stays: bool) -> int:
    columns, rows = window_size()
    async with place.terminal(name, cols=columns, rows=rows, command=START_PYTHON if python else None) as terminal:
        if os.isatty(1):
            what = "A new terminal" if terminal.is_new else f"The terminal {name!r}, as it was left,"
            end = "Ctrl-] twice leaves it running" if stays else "Ctrl-D leaves it and destroys it"
            print(f"{what} in {place.id}. {end}.", file=sys.stderr)
        # WHY: one that was there before has the size of another window.
        await terminal.resize(columns, rows)
        has_ended = await join(terminal, can_detach=stays)
    if not has_ended:
        print(f"\nIt runs on; `warren shell --sandbox {place.id} --terminal {name}` returns to it.", file=sys.stderr)
        return 0
    return terminal.exit_code or 0


async def join(terminal: AsyncTerminal | Terminal, *, can_detach: bool = False) -> bool:
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
