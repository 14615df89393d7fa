"""`warren shell`: a terminal in a fresh sandbox."""

from __future__ import annotations

import functools
import os
import signal
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from warren.cli.options import AllowBare, Cpus, Disk, EngineName, Env, ImageName, Memory, build_choice
from warren.cli.units import render_size
from warren.errors import InvalidRequest

if TYPE_CHECKING:
    from warren.cli.embedded import Prepared
    from warren.cli.signals import Signals
    from warren.core.link import Terminal

EXAMPLES = """\b
Examples:
  warren shell
  warren shell --python --image data --memory 2G
"""

_BASH = ("bash", "-i")
_ENV = {"TERM": "xterm-256color", "PS1": r"sandbox:\w\$ "}
# IPython where the image has it, for its editing and completion; the plain prompt where not.
_START_PYTHON = """
import os, sys
try:
    from IPython import start_ipython
except ImportError:
    os.execvp("python", ["python", "-q"])
sys.exit(start_ipython(argv=["--no-banner", "--no-confirm-exit"]))
"""
_PYTHON = ("python", "-c", _START_PYTHON)


def shell(
    *,
    python: Annotated[bool, typer.Option("--python/--bash", help="An interactive Python, or bash.")] = False,
    image: ImageName = None,
    memory: Memory = None,
    cpus: Cpus = None,
    disk: Disk = None,
    env: Env = None,
    engine: EngineName = None,
    allow_bare: AllowBare = False,
) -> int:
    """Open a terminal in a fresh sandbox; leaving it destroys the sandbox and its files.

    The exit code is that of bash or Python.
    """
    import anyio

    if not os.isatty(0):
        raise InvalidRequest("warren shell needs a terminal: to run what comes from a pipe, use `warren run --shell -`")
    from warren.cli.embedded import prepare
    from warren.cli.signals import run_with_signals

    choice = build_choice(image=image, memory=memory, cpus=cpus, disk=disk, env=env, engine=engine, allow=allow_bare)
    return anyio.run(run_with_signals, functools.partial(_session, prepare(choice), _PYTHON if python else _BASH))


async def _session(prepared: Prepared, argv: tuple[str, ...], _signals: Signals) -> int:
    from warren.cli.embedded import linked_sandbox
    from warren.cli.terminal import raw_mode, window_size

    async with linked_sandbox(prepared) as link:
        columns, rows = window_size()
        if os.isatty(1):
            memory = render_size(prepared.limits.memory_bytes)
            print(
                f"A fresh sandbox, {memory} of memory, no network. Ctrl-D leaves it and destroys it.", file=sys.stderr
            )
        terminal = await link.terminal("shell", argv=argv, cols=columns, rows=rows, env=_ENV)
        with raw_mode():
            return await _join(terminal)


async def _join(terminal: Terminal) -> int:
    """Copy keys in and output out until the program ends."""
    import anyio

    from warren.cli.program import write_all
    from warren.cli.terminal import read_stdin, window_size

    async def send_keys() -> None:
        async for keys in read_stdin():
            await terminal.send(keys)
        await terminal.send(b"\x04")

    async def follow_window() -> None:
        with anyio.open_signal_receiver(signal.SIGWINCH) as changes:
            async for _ in changes:
                await terminal.resize(*window_size())

    async with anyio.create_task_group() as group:
        group.start_soon(send_keys)
        group.start_soon(follow_window)
        while data := await terminal.receive():
            write_all(1, data)
        code = await terminal.exit_code()
        group.cancel_scope.cancel()
    return code
