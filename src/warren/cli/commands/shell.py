"""`warren shell`: a terminal in a fresh sandbox, or in one that stays."""

from __future__ import annotations

import dataclasses
import functools
import os
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from warren.cli.options import AllowBare, Choice, EngineName, Target, option
from warren.cli.service.candidates import list_sandboxes
from warren.cli.units import render_size
from warren.domain.errors import InvalidRequest

if TYPE_CHECKING:
    from warren.cli.service.embedded import Prepared
    from warren.cli.terminal.signals import Signals

EXAMPLES = """\b
Examples:
  warren shell
  warren shell --python --image data --memory 2G
  warren shell --sandbox 3fa9       # in one that runs; Ctrl-] twice leaves it, and the same command returns
  warren shell --url https://sandboxes.example.com --sandbox 3fa9
"""


def shell(
    *,
    python: Annotated[bool, typer.Option("--python/--bash", help="Start an interactive Python, or bash.")] = False,
    sandbox: Annotated[
        str | None,
        option(
            "SANDBOX", "Existing sandbox, instead of a fresh one.", "--sandbox", "-s", autocompletion=list_sandboxes
        ),
    ] = None,
    terminal: Annotated[str, option("NAME", "Name of the terminal; opened if it does not exist.")] = "main",
    choice: Choice,
    engine: EngineName = None,
    allow_bare: AllowBare = False,
    target: Target,
) -> int:
    """Open a terminal in a fresh sandbox; leaving it destroys the sandbox and its files.

    With --sandbox, the terminal belongs to an existing sandbox: its program keeps running when the connection ends, and
    the same command returns to it, with the screen as it was. The exit code is that of bash or Python.
    """
    if not os.isatty(0):
        raise InvalidRequest("warren shell needs a terminal: to run what comes from a pipe, use `warren run --shell -`")
    choice = dataclasses.replace(choice, engine=engine, allow_bare=allow_bare)
    if sandbox is None and (engine is not None or not target.is_remote):
        import anyio

        from warren.cli.service.embedded import prepare
        from warren.cli.terminal.signals import run_with_signals

        return anyio.run(run_with_signals, functools.partial(_session, prepare(choice), python))
    from warren.cli.execution.attach import attach

    if sandbox is not None and choice != Choice():
        raise typer.BadParameter("an existing sandbox has its image and limits: leave them out with --sandbox.")
    return attach(target, sandbox, terminal, python=python, options=choice.build_options())


async def _session(prepared: Prepared, python: bool, _signals: Signals) -> int:
    from warren.cli.execution.attach import START_PYTHON, join
    from warren.cli.service.embedded import linked_sandbox
    from warren.cli.terminal.terminal import window_size

    async with linked_sandbox(prepared) as (agent, _):
        columns, rows = window_size()
        if os.isatty(1):
            memory = render_size(prepared.limits.memory_bytes)
            print(
                f"A fresh sandbox, {memory} of memory, no network. Ctrl-D leaves it and destroys it.", file=sys.stderr
            )
        argv = ("bash", "-c", START_PYTHON) if python else ("bash", "-i")
        terminal = await agent.terminal("shell", argv=argv, cols=columns, rows=rows)
        await join(terminal)
        return await terminal.exit_code()
