"""An execution under way: who asked for it, what it is given to read, and whoever follows it."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Self

import anyio

from warren.core.execution_replay import replay
from warren.domain import KIB, Event
from warren.errors import Conflict, Error, NotFound, SandboxLost

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from types import TracebackType

    from warren.core.link import Link
    from warren.records import Caller, Execution, Sandbox

PIECE_BYTES = 64 * KIB
PIECES_WAITING = 16
"""Input that the program has not taken yet; whoever writes more waits."""


class Typed:
    """Standard input that is written while the program runs: an async iterable of bytes, bounded."""

    def __init__(self) -> None:
        self._send, self._receive = anyio.create_memory_object_stream[bytes](PIECES_WAITING)

    async def write(self, data: bytes) -> None:
        """Hand bytes over; waits while the program has enough to read. Raises Conflict once it takes no more."""
        try:
            for at in range(0, len(data), PIECE_BYTES):
                await self._send.send(data[at : at + PIECE_BYTES])
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            raise Conflict("the execution takes no more input: it has ended, or its input was closed") from None

    def finish(self) -> None:
        """Say that no more follows."""
        self._send.close()

    def close(self) -> None:
        """Take no more: the execution has ended."""
        self._send.close()
        self._receive.close()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        try:
            return await self._receive.receive()
        except (anyio.EndOfStream, anyio.ClosedResourceError):
            raise StopAsyncIteration from None


class Running:
    """One execution, from when it was admitted until it is known how it ended.

    Whoever began one in the foreground and loses interest calls `release`, or uses `async with`: it is then ended.
    """

    def __init__(self, execution: Execution, caller: Caller, sandbox: Sandbox, link: Link) -> None:
        self.execution = execution
        """As it is known now; with its result once `finished` is set."""
        self.caller = caller
        self.sandbox = sandbox
        self.link = link
        self.stdin: Typed | None = None
        self.finished = anyio.Event()
        self.error: Error | None = None
        """Why it never ran, when the agent refused it."""
        self.scope = anyio.CancelScope()
        """What `release` cancels: the wait for the result, not the cleaning up after it."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self.release()

    def release(self) -> None:
        """Lose interest: what is not in the background is ended, and recorded. Safe to call twice."""
        if not self.execution.background and not self.finished.is_set():
            self.scope.cancel()

    async def wait(self) -> Execution:
        """Wait for its end. Raises what the agent refused it with."""
        await self.finished.wait()
        if self.error is not None:
            raise self.error
        return self.execution

    async def events(self, after: int = 0) -> AsyncGenerator[Event, None]:
        """Yield what it did after event `after`, live too; the result is the last. Leaving early releases nothing.

        Whoever reads slowly misses output, and the next event says how much: nothing piles up here.
        """
        seen = after
        with contextlib.suppress(SandboxLost, NotFound):
            async with contextlib.aclosing(self.link.attach(self.execution.id, after)) as events:
                async for event in events:
                    seen = event.seq
                    if event.result is None:
                        yield event
                        continue
                    # WHY: not the event's own result: what is said here is what is recorded, and only once it can be.
                    execution = await self.wait()
                    yield Event(seen, "result", result=execution.result)
                return
        for event in replay(await self.wait(), seen):
            yield event
