"""What `warren run` does: files in, the program with live output, files out, and the sandbox gone."""

from __future__ import annotations

import contextlib
import functools
import os
import select
import stat
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import anyio

from warren.cli.execution import copying
from warren.cli.quick.standard_streams import write_all
from warren.cli.service.embedded import linked_sandbox, prepare, save_ticket
from warren.cli.terminal import report
from warren.cli.terminal.signals import run_with_signals
from warren.cli.terminal.tables import render_json
from warren.cli.terminal.terminal import read_stdin
from warren.core.agent.events import Shown, parse_result
from warren.core.agent.request import render_request
from warren.domain.errors import SandboxLost
from warren.domain.values import ExecKind, ExecRequest, new_id
from warren.guest.wire.frames import ProtocolError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping

    from warren.cli.options import Choice
    from warren.cli.service.embedded import Prepared
    from warren.cli.terminal.signals import Signals
    from warren.domain.values import Event, ExecResult
    from warren.guest.wire.frames import Header

OUTPUT_MAX_BYTES = 1 << 40
"""Live output passes through and is not kept, so the bound that protects a service would only be in the way."""


@dataclass(frozen=True, slots=True)
class Program:
    """One program and how to run it."""

    source: str
    arguments: tuple[str, ...] = ()
    is_shell: bool = False
    timeout_s: float | None = None
    copies: tuple[tuple[str, str], ...] = ()
    output_dir: str | None = None
    forward_stdin: bool = True
    as_json: bool = False


def perform(program: Program, choice: Choice, asked: Mapping[str, Any] | None = None) -> int:
    """Run it in a fresh sandbox and give the exit code for the shell; leave a ticket for what was `asked`."""
    copying.check_sources(program.copies)
    if program.output_dir is not None:
        copying.check_target(program.output_dir)
    return anyio.run(run_with_signals, functools.partial(_perform, program, prepare(choice), asked))


async def _perform(program: Program, prepared: Prepared, asked: Mapping[str, Any] | None, signals: Signals) -> int:
    request = _build_request(program, prepared.settings.timeout_s)
    async with linked_sandbox(prepared) as (agent, engine):
        if asked is not None:
            save_ticket(
                engine, prepared, asked, render_request(_build_request(Program(""), prepared.settings.timeout_s))
            )
        for source, target in program.copies:
            await copying.copy_in(agent, source, target)
        if request.scan_changes:
            await agent.changes()
        signals.target = (agent, request.id)
        stdin = read_stdin() if program.forward_stdin else None
        output = LiveOutput()
        result = await output.follow(agent.stream(request, stdin))
        signals.target = None
        if program.output_dir is not None:
            room = copying.Room(prepared.limits.disk_bytes)
            await copying.copy_out(agent, result, program.output_dir, room)
    if program.as_json:
        print(render_json(report.as_json(result)))
    else:
        explain_end(result, output.printed)
    return report.exit_code(result)


def _build_request(program: Program, timeout_s: float | None) -> ExecRequest:
    kind, argv = ExecKind.SCRIPT, program.arguments
    if program.is_shell:
        kind, argv = ExecKind.ARGV, ("bash", "-c", program.source, "bash", *program.arguments)
    return ExecRequest(
        id=new_id("exe"),
        kind=kind,
        code="" if program.is_shell else program.source,
        argv=argv,
        timeout_s=timeout_s if program.timeout_s is None else program.timeout_s,
        stream=not program.as_json,
        paced=True,
        output_max_bytes=OUTPUT_MAX_BYTES,
        scan_changes=program.as_json or program.output_dir is not None,
    )


class LiveOutput:
    """Prints output as it comes, and counts it."""

    def __init__(self) -> None:
        self.printed = 0

    async def follow(self, events: AsyncGenerator[Event, None]) -> ExecResult:
        """Write what each event holds to the descriptor it was written to inside; return the result, the last."""
        async with contextlib.aclosing(events):
            async for event in events:
                if event.result is not None:
                    return event.result
                if event.kind in {"stdout", "stderr"}:
                    await write_patiently(1 if event.kind == "stdout" else 2, event.data)
                    self.printed += len(event.data)
        raise SandboxLost("the execution ended without a result")


async def write_patiently(fd: int, data: bytes) -> None:
    """Write bytes to a descriptor of ours; while a pipe's reader does not read, signals are still heard."""
    if not stat.S_ISFIFO(os.fstat(fd).st_mode) or not hasattr(select, "poll"):
        write_all(fd, data)
        return
    poller = select.poll()
    poller.register(fd, select.POLLOUT)
    view = memoryview(data)
    while view:
        if not poller.poll(0):
            await anyio.wait_writable(fd)
        # A pipe that has room has room for so much: more could block.
        view = view[os.write(fd, view[: select.PIPE_BUF]) :]


def finish_frame(header: Header, payload: bytes, exec_id: str, printed: int) -> int:
    """Explain the result that a quick run received as a frame, and return the exit code. Raises SandboxLost."""
    try:
        result = parse_result(header, payload, exec_id, Shown())
    except ProtocolError as exc:
        raise SandboxLost(f"the sandbox broke its protocol: {exc}") from exc
    explain_end(result, printed)
    return report.exit_code(result)


def explain_end(result: ExecResult, printed: int) -> None:
    """Say why it ended, and how much of its output was never printed: a program does not wait for a slow reader."""
    for line in (report.explain(result) or "").splitlines():
        print(f"warren: {line}", file=sys.stderr)
    for note in result.notes:
        print(f"warren: note: {note}", file=sys.stderr)
    missing = result.stdout_bytes + result.stderr_bytes - printed
    if missing > 0:
        print(report.explain_gap(missing, "--output"), file=sys.stderr)
