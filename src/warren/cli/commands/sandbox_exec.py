"""`warren sandbox exec`: something more in a sandbox that stays."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated, Any

import typer

from warren.cli.options import Env, SandboxId, Target, argument, option, time_limit
from warren.cli.service.connection import find_sandbox, run_with_client
from warren.cli.units import parse_pair

if TYPE_CHECKING:
    from warren import AsyncClient
    from warren.cli.terminal.signals import Signals

EXAMPLES = """\b
Examples:
  warren sandbox exec 3fa9 -- ls -la
  warren sandbox exec 3fa9 -c 'x = 6 * 7'      # Python, whose variables stay
  warren sandbox exec 3fa9 -c 'x'
  warren sandbox exec 3fa9 --figures . -c 'import matplotlib.pyplot as plt; plt.plot([1, 4, 9]); plt.show()'
  warren sandbox exec 3fa9 --shell -c 'ls | wc -l'
  tar c . | warren sandbox exec 3fa9 -- tar x
  warren sandbox exec 3fa9 --background -- python train.py
"""


def run(
    sandbox: SandboxId,
    command: Annotated[list[str] | None, argument("[-- COMMAND...]", "Program and its arguments.")] = None,
    *,
    code: Annotated[
        str | None, option("CODE", "Python code, run in a kernel that keeps its variables.", "--code", "-c")
    ] = None,
    shell: Annotated[bool, typer.Option("--shell", help="The code is bash.")] = False,
    kernel: Annotated[str, option("NAME", "Kernel to run Python in.")] = "main",
    fresh: Annotated[bool, typer.Option("--fresh", help="Run Python in a new process instead of a kernel.")] = False,
    timeout: Annotated[float | None, time_limit("Time limit, such as 30s or 5m.")] = None,
    env: Env = None,
    cwd: Annotated[str | None, option("DIR", "Working directory, inside the workspace.")] = None,
    figures: Annotated[str | None, option("DIR", "Save the images that Python displays to this folder.")] = None,
    no_stdin: Annotated[bool, typer.Option("--no-stdin", "-n", help="Do not forward standard input.")] = False,
    background: Annotated[
        bool,
        typer.Option(
            "--background",
            "-d",
            help="Print the id of the execution and return; `warren sandbox logs` shows its output.",
        ),
    ] = False,
    target: Target,
    as_json: Annotated[bool, typer.Option("--json", help="Print the whole result as JSON at the end.")] = False,
) -> int:
    """Run a program or Python code in a sandbox, and exit with its exit code.

    A stopped sandbox is started first. Output appears as it is written, and Ctrl-C interrupts the program. The exit
    code is the program's own; 124 when it ran out of time, 137 when out of memory, 128 + N when killed by signal N.
    """
    what = _choose(code, command, shell=shell)
    if figures is not None:
        if background:
            raise typer.BadParameter("--figures needs a command that waits: leave out --background.")
        os.makedirs(figures, exist_ok=True)
    options: dict[str, Any] = {
        **what,
        "kernel": kernel,
        "fresh": fresh,
        "timeout_seconds": timeout,
        "env": dict(parse_pair(pair) for pair in env or ()),
        "cwd": cwd,
    }

    async def work(client: AsyncClient, signals: Signals) -> int:
        from warren.cli.execution.following import OUTPUT_MAX_BYTES, Follower

        place = await find_sandbox(client, target, sandbox, to_use=True)
        if background:
            print((await place.start(**options)).id)
            return 0
        follower = Follower(as_json=as_json, figures=figures, sandbox=place.id)
        stream = place.stream(**options, stdin_open=not no_stdin, output_max_bytes=OUTPUT_MAX_BYTES)
        return follower.finish(await follower.run(stream, signals, with_stdin=not no_stdin))

    return run_with_client(target, work)


def _choose(code: str | None, command: list[str] | None, *, shell: bool) -> dict[str, Any]:
    if (code is None) == (not command):
        raise typer.BadParameter("write what to run after --, as in -- ls -la, or give Python with -c, and not both.")
    if code is None:
        if shell:
            raise typer.BadParameter("--shell is for -c: write --shell -c 'ls | wc -l'.")
        return {"command": command}
    return {"command": code} if shell else {"code": code}
