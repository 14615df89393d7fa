"""What `warren run` does on a service: a sandbox is made there, used as one of this machine would be, and removed."""

from __future__ import annotations

import functools
import os
from typing import TYPE_CHECKING, Any

import anyio

from warren.cli.execution import copying
from warren.cli.execution.following import Follower
from warren.cli.execution.program import OUTPUT_MAX_BYTES
from warren.cli.options import Target
from warren.cli.service.connection import prepare_image, run_with_client

if TYPE_CHECKING:
    from collections.abc import Mapping

    from warren import AsyncClient, AsyncSandbox, AsyncStream
    from warren.cli.execution.program import Program
    from warren.cli.options import Choice
    from warren.cli.terminal.signals import Signals


def perform_remotely(program: Program, choice: Choice, url: str | None, egress: Mapping[str, Any] | None) -> int:
    """Run it in a fresh sandbox of a service, the one of this machine or one in this command where none is named.

    Returns the exit code for the shell.
    """
    copying.check(program.copies, program.output_dir)

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

    target = Target(url)
    prepare_image(target, choice)
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
