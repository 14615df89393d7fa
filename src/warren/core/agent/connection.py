"""Our end of a connection to an agent: streams multiplexed over one Channel. Every byte that arrives is hostile.

1. The reader never waits for a consumer. What it queues is bounded: data by the credit we granted, output by dropping
   it (and saying how much), anything else by calling it a protocol error.
2. A protocol error ends the connection; every call that waits raises SandboxLost.
3. A request goes out in one write by the task that makes it; everything else is written by the writer task.
"""

from __future__ import annotations

import contextlib
from collections import deque
from typing import TYPE_CHECKING, ParamSpec, Self, TypeVar

import anyio
import anyio.lowlevel

from warren.core.agent.streams import ALL_CONNECTIONS, AgentStream, Unread, room_for
from warren.core.agent.values import Hello, parse_hello
from warren.domain.errors import Conflict, SandboxLost
from warren.guest.wire.frames import WINDOW, Decoder, Header, ProtocolError, encode

if TYPE_CHECKING:
    from collections.abc import AsyncIterable, Awaitable, Callable

    from anyio.abc import TaskGroup

    from warren.engines.base import Channel

HELLO_TIMEOUT_S = 10.0
PROOF_S = 5.0
"""How long an agent that was late may take to answer a ping."""
MAX_OPENED = 256
"""Streams that an agent may have open towards us; further ones are refused."""
MAX_ALL_OUTPUT_QUEUED = 32 << 20
MAX_ALL_QUEUED = 128 << 20
"""Unread on all streams together. Beyond the first, output is dropped; beyond the second, the slowest stream is."""
_CLOSED_HERE = "the connection to the sandbox was closed on this side"
_MAX_UNSENT = 4 << 20
_BATCH = 1 << 20

P = ParamSpec("P")
T = TypeVar("T")


class Connection:
    """One connection: a reader and a writer task, and the streams they serve.

    Either `async with` it, or `await Connection.open(channel, task_group)` to have its tasks run in that group.
    """

    hello: Hello
    """The first frame of the agent."""

    def __init__(self, channel: Channel, unread: Unread = ALL_CONNECTIONS) -> None:
        self._channel = channel
        self._all_unread = unread
        self._streams: dict[int, AgentStream] = {}
        self._next_id = 1
        self._last_opened = 0
        self._out: deque[bytes | bytearray | memoryview] = deque()
        self._unsent = 0
        self._sending = False
        self._posted: anyio.Event | None = None
        self._greeted = anyio.Event()
        self._ended = anyio.Event()
        self._pongs: deque[anyio.Event] = deque()
        self._scopes: list[anyio.CancelScope] = []
        self._is_doubted = False
        self._tasks: TaskGroup | None = None
        self._own_tasks: TaskGroup | None = None
        self.queued = 0
        """Bytes of events that have arrived and not been read, on all streams."""
        self.unread: set[AgentStream] = set()
        """Streams with unread events; also answered ones."""
        self.waiting: set[AgentStream] = set()
        """Streams whose data waits until less is unsent."""
        self.lost: SandboxLost | None = None
        """Why the connection ended; None while it is open."""
        self.broke_protocol = False
        """Whether the agent sent what no correct agent sends; its sandbox should be stopped."""

    @classmethod
    async def open(cls, channel: Channel, tasks: TaskGroup) -> Self:
        """Start a connection whose tasks run in `tasks`, and wait for the hello. Raises SandboxLost."""
        agent = cls(channel)
        await agent._start(tasks)
        return agent

    async def __aenter__(self) -> Self:
        self._own_tasks = anyio.create_task_group()
        await self._own_tasks.__aenter__()
        try:
            await self._start(self._own_tasks)
        except BaseException:
            await self.__aexit__(None, None, None)
            raise
        return self

    async def __aexit__(self, *_raised: object) -> None:
        await self.aclose()
        if self._own_tasks is not None:
            self._own_tasks.cancel_scope.cancel()
            # The body's exception is not handed over: a task group would wrap it, and callers catch it by its class.
            await self._own_tasks.__aexit__(None, None, None)

    async def aclose(self) -> None:
        """Close the connection; the sandbox lives on. Safe to call twice."""
        self._lose(SandboxLost(_CLOSED_HERE))
        with anyio.CancelScope(shield=True):
            await self._channel.aclose()

    async def wait_lost(self) -> SandboxLost:
        """Wait until the connection has ended, and return why."""
        await self._ended.wait()
        assert self.lost is not None
        return self.lost

    async def ping(self) -> None:
        """Wait for the agent to answer. Raises SandboxLost; put your own deadline around it."""
        pong = anyio.Event()
        self._pongs.append(pong)
        self.post({"t": "ping"})
        await pong.wait()
        self._check_open()

    async def request(
        self,
        op: str,
        parameters: Header | None = None,
        payload: bytes = b"",
        pieces: tuple[bytes | memoryview, ...] = (),
        *,
        window: int = WINDOW,
    ) -> AgentStream:
        """Send a request and return its stream, which the caller must read to its end or close.

        `pieces` are data within the first credit; they and their end go out in the same write. `window` is how much
        data the agent may send that has not been read: what a slow reader costs us.
        """
        if self.lost is not None:
            # A caller that is cancelled together with the connection gets that, and not a lost sandbox.
            await anyio.lowlevel.checkpoint_if_cancelled()
            self._check_open()
        if len(self._streams) >= room_for(op):
            raise Conflict(f"{len(self._streams)} requests are under way in this sandbox, or followed: end some first")
        stream = AgentStream(self, self._next_id, window)
        if parameters is not None:
            stream.about = parameters.get("exec", "")
        self._next_id += 2
        header: Header = {"t": "req", "id": stream.id, "op": op, **(parameters or {})}
        if window != WINDOW:
            header["window"] = window
        parts = encode(header, payload)
        for piece in pieces:
            stream.credit -= len(piece)
            parts += encode({"t": "data", "id": stream.id}, piece)
        if pieces:
            parts += encode({"t": "eof", "id": stream.id})
        self._streams[stream.id] = stream
        if self._out or self._sending:
            self._queue(parts)
        else:
            await self._transmit(b"".join(parts))
            if self.lost is not None:
                self.forget(stream)
                self._check_open()
        return stream

    async def call(self, op: str, parameters: Header | None = None, payload: bytes = b"") -> tuple[Header, bytes]:
        """Send a request and return its answer."""
        stream = await self.request(op, parameters, payload)
        try:
            return await stream.answer()
        finally:
            stream.close()

    def tell(self, op: str, parameters: Header) -> None:
        """Queue a request and discard its answer."""
        self.post({"t": "req", "id": self._next_id, "op": op, **parameters})
        self._next_id += 2

    def post(self, header: Header, payload: bytes | memoryview = b"") -> None:
        """Queue a frame for the writer."""
        if self.lost is None:
            self._queue(encode(header, payload))

    @property
    def is_busy(self) -> bool:
        """Whether so much is unsent that data should wait."""
        return self._unsent >= _MAX_UNSENT

    def checked(self, parse: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Parse a claim of the agent; one that cannot be parsed ends the connection."""
        try:
            return parse(*args, **kwargs)
        except ProtocolError as error:
            raise self.break_off(error) from error

    def break_off(self, error: ProtocolError) -> SandboxLost:
        """End the connection because of what the agent sent; return the error to raise."""
        self.broke_protocol = True
        self._lose(SandboxLost(f"the sandbox broke its protocol: {error}"))
        return SandboxLost(str(self.lost))

    def give_up(self, execution_id: str, why: str) -> None:
        """Stop waiting for an execution that is late: all that read about it get SandboxLost.

        The connection ends too, unless the agent answers within 5 seconds.
        """
        for stream in [one for one in self._streams.values() if one.about == execution_id]:
            self.forget(stream)
            stream.fail(SandboxLost(why))
        if not self._is_doubted and self.lost is None:
            assert self._tasks is not None
            self._is_doubted = True
            self._tasks.start_soon(self._prove_alive)

    def forget(self, stream: AgentStream) -> None:
        """Take a stream off the table, and cancel it at the agent unless that has answered."""
        if self._streams.pop(stream.id, None) is not None and not stream.answered:
            self.post({"t": "cancel", "id": stream.id})
        stream.answered = True
        self.waiting.discard(stream)
        stream.wake()

    def count(self, stream: AgentStream, size: int) -> None:
        """Count events of a stream that arrived, or were read."""
        before, self.queued = self.queued, self.queued + size
        if self.lost is None:
            self._all_unread.change(before, self.queued)
        if stream.buffered:
            self.unread.add(stream)
        else:
            self.unread.discard(stream)

    def is_full(self, *, is_output: bool) -> bool:
        """Whether so much is unread that no more may be kept."""
        most = MAX_ALL_OUTPUT_QUEUED if is_output else MAX_ALL_QUEUED
        return self.queued > most or self._all_unread.is_full_for(self.queued, is_output=is_output)

    def drop_slowest(self) -> None:
        """Make room by failing the slowest stream: the agent is not to blame for a reader of ours."""
        max(self.unread, key=lambda stream: stream.buffered).drop()

    def feed(self, stream: AgentStream, source: bytes | AsyncIterable[bytes]) -> None:
        """Send a source on a stream, in a task of the connection that ends with the stream."""
        assert self._tasks is not None
        stream.feeding = anyio.CancelScope()
        self._tasks.start_soon(self._feed, stream, stream.feeding, source)

    def serve(self, handler: Callable[[AgentStream], Awaitable[None]], stream: AgentStream) -> None:
        """Run `handler` for a stream that the agent opened."""
        assert self._tasks is not None
        self._tasks.start_soon(self._serve, handler, stream)

    def opened(self, stream: AgentStream, _header: Header) -> None:
        """Take a stream that the agent opened. A plain connection refuses it."""
        self.forget(stream)

    async def _start(self, tasks: TaskGroup) -> None:
        self._tasks = tasks
        tasks.start_soon(self._read)
        tasks.start_soon(self._write)
        try:
            with anyio.move_on_after(HELLO_TIMEOUT_S):
                await self._greeted.wait()
        except BaseException:
            await self.aclose()
            raise
        if not hasattr(self, "hello"):
            self._lose(SandboxLost(f"the agent did not say hello within {HELLO_TIMEOUT_S:g} seconds"))
            await self.aclose()
            self._check_open()

    async def _read(self) -> None:
        decoder = Decoder()
        why = "the sandbox is gone: its agent closed the connection"
        try:
            with anyio.CancelScope() as scope:
                self._scopes.append(scope)
                while self.lost is None and (data := await self._channel.receive()):
                    for header, payload in decoder.feed(data):
                        self._handle(header, payload)
        except ProtocolError as error:
            self.break_off(error)
        except (SandboxLost, OSError) as error:
            why = str(error)
        except anyio.get_cancelled_exc_class():
            why = _CLOSED_HERE
            raise
        finally:
            self._lose(SandboxLost(why))
            with anyio.CancelScope(shield=True):
                await self._channel.aclose()

    def _handle(self, header: Header, payload: bytes) -> None:
        kind, stream_id = header["t"], header.get("id", 0)
        if not self._greeted.is_set():
            self.hello = parse_hello(header)
            self._greeted.set()
        elif kind in {"data", "eof", "event", "ok", "err", "credit"}:
            self._handle_stream(kind, stream_id, header, payload)
        elif kind == "open":
            self._handle_open(stream_id, header)
        elif kind == "ping":
            # Not to one that asks without reading: its answers would pile up here.
            if not self.is_busy:
                self.post({"t": "pong"})
        elif kind == "pong":
            if self._pongs:
                self._pongs.popleft().set()
        else:
            raise ProtocolError("a frame of an unknown type")

    def _handle_stream(self, kind: str, stream_id: int, header: Header, payload: bytes) -> None:
        stream = self._streams.get(stream_id)
        if stream is None:
            # Frames of a stream that we have cancelled may still be under way.
            if stream_id >= self._next_id if stream_id % 2 else stream_id > self._last_opened:
                raise ProtocolError("a frame for a stream that was never opened")
        elif kind == "credit":
            stream.grant(header.get("n"))
        else:
            stream.push(header, payload)
            if stream.answered:
                # It may be gone already: this push may have made it the slowest stream, which is dropped.
                self._streams.pop(stream_id, None)

    def _handle_open(self, stream_id: int, header: Header) -> None:
        if stream_id % 2 or stream_id <= self._last_opened:
            raise ProtocolError("the agent opened a stream under a number that is not its own, or not new")
        self._last_opened = stream_id
        stream = AgentStream(self, stream_id)
        self._streams[stream_id] = stream
        if sum(1 for one in self._streams if one % 2 == 0) > MAX_OPENED:
            if self.is_busy:
                raise ProtocolError("more streams than it may open, and it does not read that they are refused")
            self.forget(stream)
        else:
            self.opened(stream, header)

    async def _write(self) -> None:
        with anyio.CancelScope() as scope:
            self._scopes.append(scope)
            while self.lost is None:
                if not self._out or self._sending:
                    self._posted = anyio.Event()
                    await self._posted.wait()
                    continue
                batch: list[bytes | bytearray | memoryview] = []
                size = 0
                while self._out and size < _BATCH:
                    batch.append(self._out.popleft())
                    size += len(batch[-1])
                await self._transmit(b"".join(batch))
                self._unsent -= size
                if self.waiting and not self.is_busy:
                    waiting, self.waiting = self.waiting, set()
                    for stream in waiting:
                        stream.wake()

    async def _transmit(self, data: bytes) -> None:
        self._sending = True
        try:
            await self._channel.send(data)
        except (SandboxLost, OSError) as error:
            self._lose(SandboxLost(str(error)))
        finally:
            self._sending = False
            if self._out and self._posted is not None:
                self._posted.set()

    def _queue(self, parts: list[bytes | bytearray | memoryview]) -> None:
        for part in parts:
            self._out.append(part)
            self._unsent += len(part)
        if self._posted is not None and not self._sending:
            self._posted.set()

    async def _prove_alive(self) -> None:
        with anyio.move_on_after(PROOF_S) as proof, contextlib.suppress(SandboxLost):
            await self.ping()
        self._is_doubted = False
        if proof.cancelled_caught:
            self.break_off(ProtocolError(f"its agent did not answer for {PROOF_S:g} seconds"))

    async def _feed(self, stream: AgentStream, scope: anyio.CancelScope, source: bytes | AsyncIterable[bytes]) -> None:
        with scope:
            try:
                await stream.send_all(source)
            except Exception as error:  # noqa: BLE001 - the caller's source; the reader of the stream raises it
                stream.fail(error)

    async def _serve(self, handler: Callable[[AgentStream], Awaitable[None]], stream: AgentStream) -> None:
        try:
            await handler(stream)
        except SandboxLost:
            pass
        finally:
            stream.close()

    def _lose(self, error: SandboxLost) -> None:
        if self.lost is not None:
            return
        self.lost = error
        self._all_unread.change(self.queued, 0)
        for stream in list(self._streams.values()):
            if stream.feeding is not None:
                stream.feeding.cancel()
            stream.fail(SandboxLost(str(error)))
        self._streams.clear()
        self._out.clear()
        for event in (self._greeted, self._ended, *self._pongs):
            event.set()
        for scope in self._scopes:
            scope.cancel()

    def _check_open(self) -> None:
        """Raise SandboxLost once the connection has ended: a fresh one each time, without an earlier traceback."""
        if self.lost is not None:
            raise SandboxLost(str(self.lost))
