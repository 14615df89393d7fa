"""An execution of a service, printed here: live output, displays, and how it ended."""

from __future__ import annotations

import contextlib
import itertools
import os
import sys
from typing import TYPE_CHECKING

import anyio

from warren.cli.errors import EXIT_FAILED
from warren.cli.terminal import report
from warren.cli.terminal.tables import render_json
from warren.cli.terminal.terminal import read_stdin, write_patiently
from warren.domain.errors import Conflict, NotFound

if TYPE_CHECKING:
    from warren import AsyncExecution, AsyncStream, Display, Event, Result
    from warren.cli.terminal.signals import Signals


OUTPUT_MAX_BYTES = 1 << 40
"""Live output passes through and is not kept, so the bound that protects a service would only be in the way."""


class RemoteExecution:
    """An execution of a service, as the target of signals."""

    def __init__(self, execution: AsyncExecution) -> None:
        self._execution = execution

    async def interrupt(self, _exec_id: str) -> None:
        """Interrupt it."""
        with contextlib.suppress(Conflict, NotFound):
            await self._execution.interrupt()

    async def kill(self, _exec_id: str) -> None:
        """Kill it."""
        with contextlib.suppress(Conflict, NotFound):
            await self._execution.kill()


class Follower:
    """Prints the events of one execution."""

    def __init__(self, *, as_json: bool = False, figures: str | None = None, sandbox: str | None = None) -> None:
        self._sandbox = sandbox
        self._as_json = as_json
        self._figures = figures
        self._unsaved = 0
        self._printed = 0
        self._write = write_patiently

    async def run(self, stream: AsyncStream, signals: Signals, *, with_stdin: bool) -> Result:
        """Print an execution of ours: it gets our standard input, and our signals."""
        from warren import Started

        self._write = signals.write
        async with anyio.create_task_group() as tasks, stream:
            async for event in stream:
                if isinstance(event, Started):
                    signals.target = (RemoteExecution(stream.execution), event.execution_id)
                    if with_stdin:
                        tasks.start_soon(_send_stdin, stream.execution)
                await self.show(event)
            signals.target = None
            tasks.cancel_scope.cancel()
        return await stream.wait()

    async def follow(self, stream: AsyncStream) -> Result:
        """Print another command's execution to its end."""
        await self.show_all(stream)
        return await stream.wait()

    async def show_all(self, stream: AsyncStream) -> None:
        """Print all that a stream has."""
        async with stream:
            async for event in stream:
                await self.show(event)

    async def show(self, event: Event) -> None:
        """Print an event."""
        from warren import Display, Output

        if isinstance(event, Display):
            said = self._save(event) or event.text or " ".join(f"[{mime}]" for mime in event.data)
            if not self._as_json:
                await self._write(1, f"{said}\n".encode())
        elif isinstance(event, Output) and not self._as_json:
            self._printed += len(event.data)
            await self._write(1 if event.stream == "stdout" else 2, event.data)

    def _save(self, display: Display) -> str | None:
        """Put a figure where it is wanted, and return its path."""
        picture = display.picture
        if picture is None or self._figures is None:
            self._unsaved += picture is not None
            return None
        ending = picture.mime.removeprefix("image/").partition("+")[0]
        names = (os.path.join(self._figures, f"figure-{number}.{ending}") for number in itertools.count(1))
        path = next(name for name in names if not os.path.exists(name))
        picture.save(path)
        return path

    def finish(self, result: Result) -> int:
        """Print how it ended, and return the exit code for the shell."""
        if self._as_json:
            print(render_json(report.result_as_json(result)))
            return report.exit_code(result)
        sys.stdout.flush()
        if self._unsaved and os.isatty(1):
            print("warren: it showed an image, which `warren sandbox exec --figures DIR` saves", file=sys.stderr)
        is_cut = report.print_end(result, self._printed, "`warren sandbox cp`", self._sandbox)
        # A person sees the sentence; a program that gets a part of the output must not take it for all.
        return report.exit_code(result) or (EXIT_FAILED if is_cut and not os.isatty(1) else 0)


async def _send_stdin(execution: AsyncExecution) -> None:
    with contextlib.suppress(Conflict, NotFound):
        async for data in read_stdin():
            await execution.write(data)
        await execution.close_stdin()
