"""An execution under way: who asked for it, what it is given to read, and whoever follows it."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from typing import TYPE_CHECKING, Self

import anyio

from warren.core.concurrency.lazy_event import LazyEvent
from warren.core.executions.replay import replay
from warren.domain.errors import Conflict, Error, NotFound, SandboxLost
from warren.domain.values import KIB, Event
from warren.guest.wire.output import HeadTail

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterable
    from types import TracebackType

    from warren.core.agent.client import AgentClient
    from warren.core.executions.writer import Start
    from warren.core.sandboxes.live import LiveSandbox
    from warren.domain.records import Caller, Execution

PARTIAL_BYTES = 64 * KIB
PIECE_BYTES = 64 * KIB
PIECES_WAITING = 16
"""Input that the program has not taken yet; whoever writes more waits."""


class StdinPipe:
    """Standard input that is written while the program runs: an async iterable of bytes, bounded."""

    def __init__(self, first: bytes) -> None:
        self._first = first
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
        if self._first:
            first, self._first = self._first, b""
            return first
        try:
            return await self._receive.receive()
        except (anyio.EndOfStream, anyio.ClosedResourceError):
            raise StopAsyncIteration from None


class Running:
    """One execution, from when it was admitted until it is known how it ended.

    Whoever began one in the foreground and loses interest calls `release`, or uses `async with`: it is then ended.
    """

    def __init__(
        self,
        execution: Execution,
        caller: Caller,
        live: LiveSandbox | None,
        *,
        agent: AgentClient | None = None,
        grace_s: float = 1.0,
    ) -> None:
        self.execution = execution
        """As it is known now; with its result once `finished` is set."""
        self.caller = caller
        self.live = live
        """Where it runs; None for one that is known only from its record."""
        self.agent = agent if live is None else live.agent
        self.grace_s = grace_s
        self.stdin: StdinPipe | None = None
        self.start: Start | None = None
        """Its start on the way to the disk; None when it was there before."""
        self.finished = LazyEvent()
        if live is None:
            self.finished.set()
        self.refused = 0
        """Connections that its sandbox had been refused when it began."""
        self.failed = 0
        """Connections that its sandbox had not been able to have by then, although it may."""
        self.is_audited = False
        self.is_kept = True
        """Whether there is a record of it; otherwise only an audit entry."""
        self.error: Error | None = None
        """Why it never ran, when the agent refused it."""
        self.scope: anyio.CancelScope | None = None
        """What ends it: the wait for the result is in it. None where the caller's own task waits."""
        self._holders = 1
        self._output: dict[str, HeadTail] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self.release()

    def hold(self) -> None:
        """Have one more caller wait for it: who asked for the same under the same idempotency key."""
        self._holders += 1

    def release(self) -> None:
        """Lose interest: when the last who waited for it does, what is not in the background is ended, and recorded."""
        self._holders -= 1
        if self._holders <= 0 and not self.execution.background:
            self.end()

    def end(self) -> None:
        """Have it ended and recorded, if it still runs and a task of the service's waits for it."""
        if self.scope is not None and not self.finished.is_set():
            self.scope.cancel()

    @property
    def open_link(self) -> AgentClient:
        """The connection to its agent. Raises SandboxLost when there is none."""
        if self.agent is None:
            raise SandboxLost("there is no connection to the sandbox of this execution")
        return self.agent

    def open_stdin(self, first: bytes | None) -> AsyncIterable[bytes]:
        """Have its input come from `stdin`, which can be written to from now on."""
        self.stdin = StdinPipe(first or b"")
        return self.stdin

    async def wait(self) -> Execution:
        """Wait for its end. Raises what the agent refused it with."""
        await self.finished.wait()
        self.check_refused()
        return self.execution

    def check_refused(self) -> None:
        """Raise what the agent refused it with, if it did."""
        if self.error is not None:
            raise type(self.error)(str(self.error))

    def keep_partial(self, event: Event) -> None:
        """Keep some of its output, in case that its sandbox is lost with the rest."""
        if event.kind in {"stdout", "stderr"}:
            self._output.setdefault(event.kind, HeadTail(PARTIAL_BYTES)).add(event.data)

    def partial(self) -> tuple[bytes, bytes]:
        """Return what is known of its stdout and stderr while there is no result."""
        stdout, stderr = (self._output.get(kind) for kind in ("stdout", "stderr"))
        return b"" if stdout is None else stdout.kept(), b"" if stderr is None else stderr.kept()

    async def events(self, after: int = 0, *, follow: bool = True) -> AsyncGenerator[Event, None]:
        """Yield what it did after event `after`, live too; the result is the last. Leaving early releases nothing.

        Whoever reads slowly misses output, and the next event says how much: nothing piles up here. Without `follow`
        it ends with what had happened when it began.
        """
        seen = after
        with contextlib.suppress(SandboxLost, NotFound):
            agent = self.open_link
            async with contextlib.aclosing(agent.attach(self.execution.id, after, follow=follow)) as events:
                async for event in events:
                    seen = event.seq
                    # Whoever knows the result may ask for the record of it.
                    yield event if event.result is None else _with_hint(event, await self.wait())
                return
        if follow or self.finished.is_set():
            for event in replay(await self.wait(), seen):
                yield event


def _with_hint(event: Event, execution: Execution) -> Event:
    """Have the hint in a result that we gave it: of what its sandbox was refused, its agent knows nothing."""
    hint = None if execution.result is None else execution.result.hint
    if event.result is None or hint is None or event.result.hint == hint:
        return event
    return replace(event, result=replace(event.result, hint=hint))
