"""`warren run`, embedded and on a service: files in, the program with live output, files out, the sandbox removed."""

from __future__ import annotations

import contextlib
import functools
import json
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import anyio

from warren.cli.execution import copying
from warren.cli.execution.following import OUTPUT_MAX_BYTES, Follower
from warren.cli.options import Target
from warren.cli.service.connection import prepare_image, run_with_client
from warren.cli.service.embedded import linked_sandbox, prepare, save_ticket
from warren.cli.terminal import report
from warren.cli.terminal.signals import run_with_signals
from warren.cli.terminal.tables import render_json
from warren.cli.terminal.terminal import read_stdin
from warren.cli.units import render_size
from warren.core.agent.events import Shown, parse_result
from warren.core.executions.request import MAX_CODE_BYTES, MAX_EXTRA_BYTES
from warren.domain.errors import InvalidRequest, SandboxLost
from warren.domain.values import ExecKind, ExecRequest, new_id
from warren.guest.wire.frames import ProtocolError
from warren.guest.wire.run_request import encode_run

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping

    from warren import AsyncClient, AsyncSandbox, AsyncStream
    from warren.cli.options import Choice
    from warren.cli.service.embedded import Prepared
    from warren.cli.terminal.signals import Signals
    from warren.domain.values import Event, ExecResult
    from warren.guest.wire.frames import Header


@dataclass(frozen=True, slots=True)
class Program:
    """One program and how to run it."""

    source: str
    name: str = ""
    """Of its file in the workspace; none for a temporary one."""
    arguments: tuple[str, ...] = ()
    is_shell: bool = False
    timeout_s: float | None = None
    copies: tuple[tuple[str, str], ...] = ()
    output_dir: str | None = None
    forward_stdin: bool = True
    as_json: bool = False


def perform(program: Program, choice: Choice, asked: Mapping[str, Any] | None = None) -> int:
    """Run it in a fresh sandbox and give the exit code for the shell; leave a ticket for what was `asked`."""
    copying.check(program.copies, program.output_dir)
    _check_sizes(program, choice)
    return anyio.run(run_with_signals, functools.partial(_perform, program, prepare(choice), asked))


async def _perform(program: Program, prepared: Prepared, asked: Mapping[str, Any] | None, signals: Signals) -> int:
    request = _build_request(program, prepared.settings.timeout_s)
    async with linked_sandbox(prepared) as (agent, engine):
        if asked is not None:
            save_ticket(engine, prepared, asked, encode_run(_build_request(Program(""), prepared.settings.timeout_s)))
        for source, target in program.copies:
            await copying.copy_in(agent, source, target)
        if request.scan_changes:
            await agent.changes()
        signals.target = (agent, request.id)
        stdin = read_stdin() if program.forward_stdin else None
        output = LiveOutput(signals)
        result = await output.follow(agent.stream(request, stdin))
        signals.target = None
        if program.output_dir is not None:
            fetch = functools.partial(copying.fetch, agent, copying.Room(prepared.limits.disk_bytes))
            await copying.copy_out(result, program.output_dir, fetch)
    if program.as_json:
        print(render_json(report.as_json(result)))
    else:
        report.print_end(result, output.printed, "--output")
    return report.exit_code(result)


def _check_sizes(program: Program, choice: Choice) -> None:
    """Raise InvalidRequest for more than the agent takes, before a sandbox is made."""
    size = len(program.source.encode("utf-8", "surrogatepass"))
    if size > MAX_CODE_BYTES:
        raise InvalidRequest(
            f"the program is {render_size(size)}, at most {render_size(MAX_CODE_BYTES)}: "
            "copy it in with --file, and run it by a short one"
        )
    for what, words in (("arguments are", program.arguments), ("variables of --env are", dict(choice.env))):
        size = len(json.dumps(words, ensure_ascii=False).encode("utf-8", "surrogatepass"))
        if size > MAX_EXTRA_BYTES:
            raise InvalidRequest(
                f"the {what} {render_size(size)}, at most {render_size(MAX_EXTRA_BYTES)} together: "
                "put them in a file, and copy that in with --file"
            )


def _build_request(program: Program, timeout_s: float | None) -> ExecRequest:
    return ExecRequest(
        id=new_id("exe"),
        kind=ExecKind.SHELL if program.is_shell else ExecKind.SCRIPT,
        code=program.source,
        argv=program.arguments,
        file=program.name,
        timeout_s=timeout_s if program.timeout_s is None else program.timeout_s,
        stream=not program.as_json,
        paced=True,
        output_max_bytes=OUTPUT_MAX_BYTES,
        scan_changes=program.as_json or program.output_dir is not None,
    )


class LiveOutput:
    """Prints output as it comes, and counts it."""

    def __init__(self, signals: Signals) -> None:
        self._signals = signals
        self.printed = 0

    async def follow(self, events: AsyncGenerator[Event, None]) -> ExecResult:
        """Write what each event holds to the descriptor it was written to inside; return the result, the last."""
        async with contextlib.aclosing(events):
            async for event in events:
                if event.result is not None:
                    return event.result
                if event.kind in {"stdout", "stderr"}:
                    await self._signals.write(1 if event.kind == "stdout" else 2, event.data)
                    self.printed += len(event.data)
        raise SandboxLost("the execution ended without a result")


def finish_frame(header: Header, payload: bytes, exec_id: str, printed: int) -> int:
    """Explain the result that a quick run received as a frame, and return the exit code. Raises SandboxLost."""
    try:
        result = parse_result(header, payload, exec_id, Shown())
    except ProtocolError as exc:
        raise SandboxLost(f"the sandbox broke its protocol: {exc}") from exc
    report.print_end(result, printed, "--output")
    return report.exit_code(result)


def perform_remotely(program: Program, choice: Choice, url: str | None, egress: Mapping[str, Any] | None) -> int:
    """Run it in a fresh sandbox of a service, the one of this machine or one in this command where none is named.

    Returns the exit code for the shell.
    """
    copying.check(program.copies, program.output_dir)
    target = Target(url)
    prepare_image(target, choice)

    async def work(client: AsyncClient, signals: Signals) -> int:
        follower = Follower(as_json=program.as_json)
        options = {**choice.build_options(), "egress": egress, "storage": "ephemeral", "checkpoints": 0}
        async with client.sandbox(**options) as sandbox:
            for source, target in program.copies:
                await _copy_in(sandbox, source, target)
            result = await follower.run(_start(sandbox, program), signals, with_stdin=program.forward_stdin)
            if program.output_dir is not None:
                fetch = functools.partial(_fetch, sandbox, copying.Room(sandbox.info.disk_mb << 20))
                await copying.copy_out(result, program.output_dir, fetch)
        return follower.finish(result)

    return run_with_client(target, work)


def _start(sandbox: AsyncSandbox, program: Program) -> AsyncStream:
    what: dict[str, Any] = {"code": program.source, "fresh": True}
    if program.is_shell:
        what = {"command": ["bash", "-c", program.source, "bash", *program.arguments]}
    elif program.arguments:
        what = {"command": ["python", "-c", program.source, *program.arguments]}
    return sandbox.stream(
        **what,
        timeout_seconds=program.timeout_s,
        stdin_open=program.forward_stdin,
        output_max_bytes=OUTPUT_MAX_BYTES,
        scan_changes=program.output_dir is not None or program.as_json,
    )


async def _copy_in(sandbox: AsyncSandbox, source: str, target: str) -> None:
    if await anyio.Path(source).is_dir():
        await sandbox.files.mkdir(target)
        await sandbox.files.upload_folder(source, target)
    else:
        await sandbox.files.upload(source, target)


async def _fetch(sandbox: AsyncSandbox, room: copying.Room, path: str, target: str) -> None:
    os.makedirs(os.path.dirname(target), exist_ok=True)
    room.take(await sandbox.files.download(path, target, progress=room.check))
