"""An execution of a service, as its output appears here: live, with what is shown, and how it ended."""

from __future__ import annotations

import contextlib
import json
import sys
from typing import TYPE_CHECKING

import anyio

from warren.cli import report
from warren.cli.program import write_patiently
from warren.cli.terminal import read_stdin
from warren.errors import Conflict, NotFound

if TYPE_CHECKING:
    from warren import AsyncExecution, AsyncStream, Event, Result
    from warren.cli.signals import Signals


class Place:
    """Where the execution runs that Ctrl-C is for."""

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

    def __init__(self, *, as_json: bool = False) -> None:
        self._as_json = as_json
        self._skipped = 0

    async def run(self, stream: AsyncStream, signals: Signals, *, with_stdin: bool) -> Result:
        """Print an execution of ours: it gets our standard input, and our signals."""
        from warren import Started

        async with anyio.create_task_group() as tasks, stream:
            async for event in stream:
                if isinstance(event, Started):
                    signals.target = (Place(stream.execution), event.execution_id)
                    if with_stdin:
                        tasks.start_soon(_send_stdin, stream.execution)
                await self.show(event)
            signals.target = None
            tasks.cancel_scope.cancel()
        return await stream.wait()

    async def follow(self, stream: AsyncStream) -> Result:
        """Print an execution of somebody's."""
        async with stream:
            async for event in stream:
                await self.show(event)
            return await stream.wait()

    async def show(self, event: Event) -> None:
        """Print an event."""
        from warren import Display, Output

        if self._as_json:
            return
        if isinstance(event, Output):
            self._skipped += event.skipped
            await write_patiently(1 if event.stream == "stdout" else 2, event.data)
        elif isinstance(event, Display):
            await write_patiently(1, f"{event.text or _describe(event)}\n".encode())

    def finish(self, result: Result) -> int:
        """Print how it ended, and return the exit code for the shell."""
        if self._as_json:
            print(json.dumps(report.result_as_json(result), ensure_ascii=False))
            return report.exit_code(result)
        sys.stdout.flush()
        for line in (report.explain(result) or "").splitlines():
            print(f"warren: {line}", file=sys.stderr)
        for note in result.notes:
            print(f"warren: note: {note}", file=sys.stderr)
        if self._skipped:
            print(
                f"warren: {self._skipped:,} bytes of its output are missing above: it wrote faster than they were read",
                file=sys.stderr,
            )
        return report.exit_code(result)


async def _send_stdin(execution: AsyncExecution) -> None:
    with contextlib.suppress(Conflict, NotFound):
        async for data in read_stdin():
            await execution.write(data)
        await execution.close_stdin()


def _describe(display: object) -> str:
    data = getattr(display, "data", {})
    return " ".join(f"[{mime}]" for mime in data)
