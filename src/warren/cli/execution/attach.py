"""`warren shell` on a service: a terminal of a sandbox that stays, or of one that is made for it."""

from __future__ import annotations

import contextlib
import os
import sys
from typing import TYPE_CHECKING, Any

from warren.cli.execution.joining import join
from warren.cli.service.id_prefix import find_sandbox
from warren.cli.terminal.terminal import window_size

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from warren import AsyncClient, AsyncSandbox
    from warren.cli.service.connection import Target
    from warren.cli.terminal.signals import Signals

_PYTHON = "command -v ipython >/dev/null && exec ipython --no-banner --no-confirm-exit; exec python -q"
"""IPython where the image has it, for its editing and completion; the plain prompt where not."""


def attach(target: Target, sandbox: str | None, terminal: str, *, python: bool, options: dict[str, Any]) -> int:
    """Join a terminal, and leave with the exit code of its program, or with 0 when it runs on."""
    from warren.cli.service.connection import run_with_client

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
    async with place.terminal(name, cols=columns, rows=rows, command=_PYTHON if python else None) as terminal:
        if os.isatty(1):
            what = "A new terminal" if terminal.is_new else f"The terminal {name!r}, as it was left,"
            end = "Ctrl-] twice leaves it running" if stays else "Ctrl-D leaves it and destroys it"
            print(f"{what} in {place.id}. {end}.", file=sys.stderr)
        # WHY: one that was there before has another window's size until it is told.
        await terminal.resize(columns, rows)
        has_ended = await join(terminal, can_detach=stays)
    if not has_ended:
        print(f"\nIt runs on; `warren shell --sandbox {place.id} --terminal {name}` returns to it.", file=sys.stderr)
        return 0
    return terminal.exit_code or 0
