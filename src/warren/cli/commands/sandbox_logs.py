"""`warren sandbox logs`: what executions wrote, also those in the background."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from warren.cli.options import AsJson, SandboxId, Target, argument
from warren.cli.service.connection import run_with_sandbox
from warren.cli.terminal.tables import print_json, print_table
from warren.cli.units import render_duration

if TYPE_CHECKING:
    from warren import AsyncSandbox, Result

EXAMPLES = """\b
Examples:
  warren sandbox logs 3fa9                # of the newest execution
  warren sandbox logs 3fa9 --follow       # until it ends; Ctrl-C leaves it running
  warren sandbox logs 3fa9 --list
  warren sandbox logs 3fa9 exe_0c5d
"""

_LISTED = 100


def logs(
    sandbox: SandboxId,
    execution: Annotated[
        str | None, argument("[EXECUTION]", "Id of an execution, or a unique prefix; the newest unless given.")
    ] = None,
    *,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Follow the output until the execution ends.")] = False,
    listing: Annotated[bool, typer.Option("--list", help="List the executions instead, newest first.")] = False,
    target: Target,
    as_json: AsJson = False,
) -> int:
    """Show the output of an execution.

    The exit code is 0 however the execution ended; with --follow, it is that of the execution.
    """

    async def work(place: AsyncSandbox) -> int:
        page = await place.executions(limit=_LISTED)
        if listing:
            _list([*page], as_json)
            return 0
        wanted = _find([*page], place, execution)
        if follow:
            from warren.cli.execution.following import Follower

            follower = Follower(as_json=as_json)
            return follower.finish(await follower.follow(place.execution(wanted).events()))
        await _show(place, wanted, as_json)
        return 0

    return run_with_sandbox(target, sandbox, work)


def _find(found: list[Result], sandbox: AsyncSandbox, text: str | None) -> str:
    from warren.domain.errors import InvalidRequest, NotFound

    if text is None:
        if not found:
            raise NotFound(f"nothing has run in sandbox {sandbox.id} yet")
        return found[0].execution_id
    wanted = text if text.startswith("exe_") else f"exe_{text}"
    ids = [each.execution_id for each in found if each.execution_id.startswith(wanted)]
    if not ids:
        raise NotFound(f"there is no execution {text[:64]} in sandbox {sandbox.id}: --list shows those there are")
    if len(ids) > 1:
        raise InvalidRequest(f"{text} may be any of {', '.join(ids[:5])}: type more of the one you mean")
    return ids[0]


async def _show(sandbox: AsyncSandbox, execution_id: str, as_json: bool) -> None:
    from warren.cli.terminal.report import result_as_json
    from warren.cli.terminal.terminal import write_patiently

    result = await sandbox.execution(execution_id).get(exact=True)
    if as_json:
        print_json(result_as_json(result))
        return
    if result.status == "running":
        from warren.cli.execution.following import Follower

        stream = sandbox.execution(execution_id).events(follow=False)
        await Follower().show_all(stream)
        if stream.result is None:
            print("warren: it is still running; --follow goes on until it ends", file=sys.stderr)
        return
    await write_patiently(1, result.raw_stdout)
    await write_patiently(2, result.raw_stderr)
    for display in result.displays:
        await write_patiently(1, f"{display.text}\n".encode())
    if result.truncated:
        os.write(2, b"warren: this is the beginning and the end: the middle was not stored\n")


def _list(found: list[Result], as_json: bool) -> None:
    if as_json:
        from warren.cli.terminal.report import result_as_json

        print_json([{**result_as_json(each), "code": each.code} for each in found])
        return
    rows = [
        (
            each.execution_id,
            each.started_at.astimezone().strftime("%Y-%m-%d %H:%M:%S"),
            "running" if each.status == "running" else each.cause or "",
            "" if each.exit_code is None else str(each.exit_code),
            render_duration(each.duration_ms / 1000) if each.status != "running" else "",
            (each.code.strip().splitlines() or [""])[0][:60],
        )
        for each in found
    ]
    print_table(None, ("execution", "started", "ended by", "exit code", "took", "what"), rows)
