"""What `warren run` does: files in, the program with live output, files out, and the sandbox gone."""

from __future__ import annotations

import contextlib
import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import anyio

from warren.cli.execution import copying
from warren.cli.quick.standard_streams import write_in_steps
from warren.cli.service.embedded import linked_sandbox, prepare, save_ticket
from warren.cli.terminal import report
from warren.cli.terminal.signals import run_with_signals
from warren.cli.terminal.tables import render_json
from warren.cli.terminal.terminal import read_stdin
from warren.core.agent.events import Shown, parse_result
from warren.domain.errors import SandboxLost
from warren.domain.values import ExecKind, ExecRequest, new_id
from warren.guest.wire.frames import ProtocolError
from warren.guest.wire.run_request import encode_run

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
    copying.check(program.copies, program.output_dir)
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
        output = LiveOutput()
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
    """Write bytes to a descriptor of ours; signals are still handled while the reader of a pipe does not read."""
    for _ in write_in_steps(fd, data):
        await anyio.wait_writable(fd)


def finish_frame(header: Header, payload: bytes, exec_id: str, printed: int) -> int:
    """Explain the result that a quick run received as a frame, and return the exit code. Raises SandboxLost."""
    try:
        result = parse_result(header, payload, exec_id, Shown())
    except ProtocolError as exc:
        raise SandboxLost(f"the sandbox broke its protocol: {exc}") from exc
    report.print_end(result, printed, "--output")
    return report.exit_code(result)
