"""Input and events of an execution: open standard input, a bounded number of followers, and replay from the record."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Self

import anyio

from warren.domain.errors import Conflict, QuotaExceeded
from warren.domain.values import KIB, Event

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterator

    from warren.core.telemetry.counters import Counters
    from warren.domain.records import Execution, Owner

PIECE_BYTES = 64 * KIB
PIECES_WAITING = 16
"""Pieces of input that the program has not read yet; a writer of more waits."""
OWN = 256
"""Followers of one owner at once. An agent serves 1024 streams, so most are left for everything else."""
_RETRY_S = 1.0


class StdinPipe:
    """Standard input that is written while the program runs: an async iterable of bytes, bounded."""

    def __init__(self, first: bytes) -> None:
        self._first = first
        self._send, self._receive = anyio.create_memory_object_stream[bytes](PIECES_WAITING)

    async def write(self, data: bytes) -> None:
        """Write bytes; waits while the program has enough to read. Raises Conflict once it takes no more."""
        try:
            for at in range(0, len(data), PIECE_BYTES):
                await self._send.send(data[at : at + PIECE_BYTES])
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            raise Conflict("the execution takes no more input: it has ended, or its input was closed") from None

    def finish(self) -> None:
        """Send the end of input."""
        self._send.close()

    def close(self) -> None:
        """Refuse further input: the execution has ended."""
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


class Following:
    """The events of one execution for one follower: iterate over it to its end, or close it."""

    def __init__(self, followers: Followers, owner: Owner, events: AsyncGenerator[Event, None]) -> None:
        self._followers = followers
        self._owner = owner
        self._events = events
        self._is_closed = False

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event:
        try:
            return await anext(self._events)
        except BaseException:
            self._leave()
            raise

    async def aclose(self) -> None:
        """Stop following. Safe to call twice."""
        self._leave()
        await self._events.aclose()

    def _leave(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            self._followers.leave(self._owner)


class Followers:
    """Counts followers by owner: each holds a stream at the agent and memory here."""

    def __init__(self, observer: Counters) -> None:
        self._observer = observer
        self._own: Counter[Owner] = Counter()

    def follow(self, owner: Owner, events: AsyncGenerator[Event, None]) -> Following:
        """Count one follower more. Raises QuotaExceeded."""
        if self._own[owner] >= OWN:
            self._observer.rejected("followers")
            raise QuotaExceeded(
                f"you follow {OWN} executions already: close some of these streams", retry_after_s=_RETRY_S
            )
        self._own[owner] += 1
        return Following(self, owner, events)

    def leave(self, owner: Owner) -> None:
        """Count one follower less."""
        self._own[owner] -= 1
        if not self._own[owner]:
            del self._own[owner]


def replay(execution: Execution, after: int = 0) -> Iterator[Event]:
    """Yield the events after number `after` of a finished execution that its agent has forgotten, from its record.

    Live events had other numbers. So that a follower of those misses nothing, the result always comes, under a number
    larger than any that it knows, and holds the whole output again.
    """
    result = execution.result
    if result is None:
        return
    seq = 0
    for kind, data in (("stdout", result.stdout), ("stderr", result.stderr)):
        if data:
            seq += 1
            if seq > after:
                yield Event(seq, kind, data)
    for display in result.displays:
        seq += 1
        if seq > after:
            yield Event(seq, "display", display=display)
    yield Event(max(seq, after) + 1, "result", result=result)
