"""Streams to an agent: unread frames, the credit of both directions, the limits of all, and bytes both ways."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, ParamSpec, Protocol, TypeVar

import anyio

from warren.core.agent.values import parse_error
from warren.domain.errors import Conflict
from warren.guest.wire.frames import CHUNK, EVENT_COST, WINDOW, Header, ProtocolError
from warren.guest.wire.streams import MAX_STREAMS

if TYPE_CHECKING:
    from collections.abc import AsyncIterable, Callable

P = ParamSpec("P")
T = TypeVar("T")

MAX_OUTPUT_QUEUED = 8 << 20
"""Output of one stream beyond this is dropped until it is read; the result still has its head and tail."""
MAX_QUEUED = 48 << 20
UNREAD_BYTES = 256 << 20
"""Of all connections together: past it, each may keep its share, so that a few noisy sandboxes silence no other."""
_MORE = 2
"""How often as much may be unread of displays and results, which are not dropped as easily as output."""
_OUTPUTS = ("stdout", "stderr")
_CONTROL = frozenset({"kill", "interrupt", "ack", "configure", "kernels", "kernel.restart", "kernel.delete"})
_LASTING = frozenset({"terminal.open", "terminal.attach", "tunnel.connect"})
_FOR_LASTING = MAX_STREAMS // 2
_FOR_MOST = MAX_STREAMS - 64


def room_for(op: str) -> int:
    """Return how many streams may be open for one more of that kind: whatever else goes on, `kill` finds room."""
    if op in _CONTROL:
        return MAX_STREAMS
    return _FOR_LASTING if op in _LASTING else _FOR_MOST


class Unread:
    """Sums the unread bytes of all connections. A connection reports each change, and leaves when it is lost."""

    def __init__(self, most: int = UNREAD_BYTES) -> None:
        self._most = most
        self._connections = 0
        self.size = 0

    def change(self, before: int, now: int) -> None:
        """Count a connection that held `before` bytes and holds `now`."""
        self.size += now - before
        self._connections += bool(now) - bool(before)

    def is_full_for(self, held: int, *, is_output: bool) -> bool:
        """Whether a connection that holds so much has more than its share, where all together have too much."""
        most = self._most if is_output else self._most * _MORE
        return self.size > most and held * self._connections > most


ALL_CONNECTIONS = Unread()
"""Memory is the process's: one for all connections, unless a test gives another."""


class _Multiplexer(Protocol):
    """The part of a `Connection` that its streams use."""

    waiting: set[AgentStream]

    @property
    def is_busy(self) -> bool: ...

    def post(self, header: Header, payload: bytes | memoryview = b"") -> None: ...

    def checked(self, parse: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T: ...

    def forget(self, stream: AgentStream) -> None: ...

    def count(self, stream: AgentStream, size: int) -> None: ...

    def is_full(self, *, is_output: bool) -> bool: ...

    def drop_slowest(self) -> None: ...


class AgentStream:
    """One request and its answer, or one tunnel that the agent opened. One task reads it."""

    __slots__ = (
        *("_arrived", "_connection", "_failure", "_grain", "_granted", "_items", "_skipped"),
        *("_unacknowledged", "about", "answered", "buffered", "credit", "feeding", "id", "is_paced", "window"),
    )

    def __init__(self, connection: _Multiplexer, stream_id: int, window: int = WINDOW) -> None:
        self._connection = connection
        self.id = stream_id
        self.about = ""
        """The id of the execution that it is about."""
        self.credit = WINDOW
        """Bytes of data we may send now."""
        self.window = window
        """Bytes of data the agent may still send."""
        self._grain = window // 4
        """Bytes to read before the agent gets as much credit again."""
        self.answered = False
        self.is_paced = False
        """Whether output uses up the window as data does: the program then waits, and no output is dropped."""
        self.feeding: anyio.CancelScope | None = None
        self._items: deque[tuple[Header, bytes]] = deque()
        self.buffered = 0
        """Bytes of events that have arrived and not been read."""
        self._skipped = 0
        self._unacknowledged = 0
        self._failure: Exception | None = None
        self._arrived: anyio.Event | None = None
        self._granted: anyio.Event | None = None

    def narrow(self, window: int, first: int) -> None:
        """Shrink the windows of a stream that the agent has just opened with these sizes."""
        self.credit, self.window = window, first
        self._grain = max(first // 4, 1)

    def widen(self, window: int) -> None:
        """Allow the agent to send this much, where it began with less."""
        more = window - self.window - self._unacknowledged
        if more > 0 and not self.answered:
            self.window += more
            self._grain = window // 4
            self._connection.post({"t": "credit", "id": self.id, "n": more})

    async def next(self) -> tuple[Header, bytes]:
        """Return the next frame; `ok` is the last. Raises the error of an `err`, or SandboxLost."""
        while not self._items:
            if self._failure is not None:
                raise self._failure
            if self._arrived is None or self._arrived.is_set():
                self._arrived = anyio.Event()
            await self._arrived.wait()
        header, payload = self._items.popleft()
        kind = header["t"]
        if kind == "data":
            self._consume(len(payload))
        elif kind == "event":
            self._count(-len(payload) - EVENT_COST)
            if self.is_paced and header.get("kind") in _OUTPUTS:
                self._consume(len(payload) + EVENT_COST)
        elif kind == "err":
            raise self._connection.checked(parse_error, header)
        return header, payload

    async def answer(self) -> tuple[Header, bytes]:
        """Return the `ok` frame, passing over whatever comes before it."""
        while True:
            header, payload = await self.next()
            if header["t"] == "ok":
                return header, payload

    async def send(self, data: bytes | memoryview) -> None:
        """Send data against credit; the rest is dropped once the agent has answered or is gone, and `next` says why."""
        view = memoryview(data)
        while view:
            while self.credit <= 0 or self._connection.is_busy:
                if self._failure is not None or self.answered:
                    return
                if self._granted is None or self._granted.is_set():
                    self._granted = anyio.Event()
                self._connection.waiting.add(self)
                await self._granted.wait()
            if self.answered:
                return
            piece = view[: min(CHUNK, self.credit)]
            self.credit -= len(piece)
            self._connection.post({"t": "data", "id": self.id}, piece)
            view = view[len(piece) :]

    async def send_all(self, source: bytes | AsyncIterable[bytes]) -> None:
        """Send a whole source and then its end."""
        if isinstance(source, bytes | bytearray | memoryview):
            await self.send(source)
        else:
            async for piece in source:
                if self.answered or self._failure is not None:
                    return
                await self.send(piece)
        self.send_eof()

    def send_eof(self) -> None:
        """Send the end of our data."""
        if not self.answered:
            self._connection.post({"t": "eof", "id": self.id})

    def close(self) -> None:
        """Stop reading; cancels the request at the agent unless it has been answered."""
        self.release()
        self._connection.forget(self)

    def release(self) -> None:
        """Stop reading after the last event: the `ok` that follows says nothing."""
        if self.feeding is not None:
            self.feeding.cancel()
        self._count(-self.buffered)
        self._items.clear()

    def drop(self) -> None:
        """Give up on a reader that does not read: all that has arrived is discarded."""
        self.close()
        self.fail(Conflict("what happened was not read for so long that it could not be kept: follow it again"))

    def fail(self, error: Exception) -> None:
        """Make `next` raise `error`, after all that has arrived."""
        self._failure = error
        self.wake()

    def push(self, header: Header, payload: bytes) -> None:
        """Take in a frame. Raises ProtocolError for more than any correct agent sends."""
        kind = header["t"]
        if kind == "data":
            self.window -= len(payload)
            if self.window < 0 or len(payload) > CHUNK:
                raise ProtocolError("data without credit")
        elif kind == "event":
            is_output = header.get("kind") in _OUTPUTS
            busy = self.buffered > MAX_OUTPUT_QUEUED or (not self.is_paced and self._connection.is_full(is_output=True))
            if is_output and busy:
                self._skipped += len(payload)
                return
            if self._skipped and is_output:
                header["dropped"], self._skipped = self._skipped, 0
            self._count(len(payload) + EVENT_COST)
            if self.is_paced and is_output:
                self.window -= len(payload) + EVENT_COST
            if self.buffered > MAX_QUEUED:
                raise ProtocolError("more events than an execution may have")
            if self._connection.is_full(is_output=False):
                self._connection.drop_slowest()
                if self._failure is not None:
                    return
        self._items.append((header, payload))
        if kind in {"ok", "err"}:
            self.answered = True
            self.wake()
        elif self._arrived is not None:
            self._arrived.set()

    def grant(self, amount: object) -> None:
        """Take in a credit frame's number."""
        if not isinstance(amount, int) or isinstance(amount, bool) or not 0 < amount <= 1 << 30:
            raise ProtocolError("credit is not a number")
        self.credit += amount
        if self._granted is not None:
            self._granted.set()

    def wake(self) -> None:
        """Wake the tasks that wait on this stream."""
        for event in (self._arrived, self._granted):
            if event is not None:
                event.set()

    def _count(self, size: int) -> None:
        self.buffered += size
        self._connection.count(self, size)

    def _consume(self, size: int) -> None:
        self._unacknowledged += size
        if self._unacknowledged >= self._grain and not self.answered:
            self.window += self._unacknowledged
            self._connection.post({"t": "credit", "id": self.id, "n": self._unacknowledged})
            self._unacknowledged = 0


class ByteStream:
    """A connection to a port inside, or one that a program inside made."""

    def __init__(self, stream: AgentStream) -> None:
        self._stream = stream
        self._answer: Header | None = None
        self._ended = False

    @property
    def is_over(self) -> bool:
        """Whether the other end takes no more of what we send."""
        return self._stream.answered

    def widen(self, window: int) -> None:
        """Allow this many unread bytes, where it began with less."""
        self._stream.widen(window)

    async def send(self, data: bytes) -> None:
        """Send all of `data`; the rest is dropped once the other end takes no more."""
        await self._stream.send(data)

    def send_eof(self) -> None:
        """Send the end of our data; receiving goes on."""
        self._stream.send_eof()

    async def receive(self) -> bytes:
        """Return the next bytes, or b"" when no more follow. Raises Conflict when the connection broke."""
        while not self._ended:
            header, payload = await self._stream.next()
            if header["t"] == "data":
                return payload
            if header["t"] in {"eof", "ok"}:
                self._ended = True
                self._answer = header if header["t"] == "ok" else None
        return b""

    async def wait(self) -> Header:
        """Wait for the last frame of the agent, discarding unread data."""
        if self._answer is None:
            self._answer, _ = await self._stream.answer()
        return self._answer

    async def aclose(self) -> None:
        """Close it. Safe to call twice."""
        self._stream.close()
