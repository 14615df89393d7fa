"""The agent's end of a connection: streams multiplexed over one socket, with credit.

A slow reader of one stream must not stall another: `data` frames are sent only against credit that the peer
granted, and frames without credit (events, replies) are bounded by dropping the connection, never by waiting.
"""

from __future__ import annotations

import socket
from collections import deque
from typing import TYPE_CHECKING, Any

from warren.guest.system.loop import READ, WRITE, Loop
from warren.guest.wire.frames import CHUNK, WINDOW, Decoder, Header, ProtocolError, encode

if TYPE_CHECKING:
    from collections.abc import Callable

MAX_BACKLOG = 32 << 20
"""Unsent bytes at which a connection whose peer does not read is dropped."""
BUSY_BACKLOG = 4 << 20
"""Unsent bytes at which senders of data wait for `on_drained`: the credits of many streams add up."""
RECEIVE_BYTES = 256 << 10
"""Size of one read: a larger buffer is a fresh mapping each time, and twice the work."""
SEND_BUFFER_BYTES = 1 << 20
MAX_STREAMS = 1024


class Stream:
    """One id on one connection: a request and its answer, or a tunnel that the agent opened.

    The server of the stream sets the `on_…` attributes; each may stay None.
    """

    __slots__ = (
        "_grain",
        "_unacknowledged",
        "closed",
        "connection",
        "credit",
        "id",
        "on_close",
        "on_credit",
        "on_data",
        "on_eof",
        "window",
    )

    def __init__(self, connection: Connection, stream_id: int) -> None:
        self.connection = connection
        self.id = stream_id
        self.credit = WINDOW
        """Bytes of data that the agent may send now."""
        self.window = WINDOW
        """Bytes of data the peer may still send."""
        self.closed = False
        self._grain = WINDOW // 4
        self._unacknowledged = 0
        self.on_data: Callable[[bytes], None] | None = None
        self.on_eof: Callable[[], None] | None = None
        self.on_credit: Callable[[], None] | None = None
        """Called after each grant of credit."""
        self.on_close: Callable[[], None] | None = None
        """Called when the peer cancels it, or the connection is gone. Not called after `reply` or `fail`."""

    def narrow(self, window: int, first: int) -> None:
        """Shrink the windows of a stream that has just been opened; the frame that opened it has both sizes."""
        self.credit, self.window = first, window
        self._grain = window // 4

    def send(self, data: bytes | memoryview) -> None:
        """Send at most CHUNK bytes of data; the caller has checked that `credit` suffices."""
        self.credit -= len(data)
        self.connection.send({"t": "data", "id": self.id}, data)

    def send_eof(self) -> None:
        """End our data; the stream stays open for the other direction and the reply."""
        self.connection.send({"t": "eof", "id": self.id})

    def event(self, header: Header, payload: bytes = b"") -> None:
        """Send an event frame; `header` must not hold `t` or `id`."""
        self.connection.send({"t": "event", "id": self.id, **header}, payload)

    def reply(self, body: dict[str, Any] | None = None, payload: bytes = b"") -> None:
        """Answer and close the stream."""
        if not self.closed:
            self.connection.send({"t": "ok", "id": self.id, **(body or {})}, payload)
            self.connection.forget(self)

    def fail(self, code: str, message: str) -> None:
        """Answer with an error and close the stream."""
        if not self.closed:
            self.connection.send({"t": "err", "id": self.id, "code": code, "message": message[:4096]})
            self.connection.forget(self)

    def consumed(self, size: int) -> None:
        """Grant the peer `size` bytes more, after that much of its data was handled."""
        self._unacknowledged += size
        if self._unacknowledged >= self._grain and not self.closed:
            self.window += self._unacknowledged
            self.connection.send({"t": "credit", "id": self.id, "n": self._unacknowledged})
            self._unacknowledged = 0


class Connection:
    """One gateway's connection. `serve(stream, header, payload)` is called for each request."""

    def __init__(self, loop: Loop, sock: socket.socket, serve: Callable[[Stream, Header, bytes], None]) -> None:
        self._loop = loop
        self._socket = sock
        self._serve = serve
        self._decoder = Decoder()
        self._streams: dict[int, Stream] = {}
        self._out: deque[memoryview] = deque()
        self.backlog = 0
        """Bytes queued but not yet taken by the peer."""
        self._waiting = False
        self._next_id = 2
        self.closed = False
        self.on_close: Callable[[], None] | None = None
        self.on_drained: set[Callable[[], None]] = set()
        """Called, each once, when the queue is empty, or the connection is gone."""
        sock.setblocking(False)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)
        loop.watch(sock.fileno(), READ, self._ready)

    def send(self, header: Header, payload: bytes | memoryview = b"") -> None:
        """Queue one frame; all frames of one round of the loop are sent together."""
        if self.closed:
            return
        idle = not self._out
        for part in encode(header, payload):
            self._out.append(memoryview(part))
            self.backlog += len(part)
        if idle:
            self._loop.call_soon(self._flush)
        if self.backlog > MAX_BACKLOG:
            self.close()

    def open(self, header: Header) -> Stream:
        """Open a stream from the agent's side (an outgoing tunnel); the agent's ids are even, the peer's odd."""
        stream = Stream(self, self._next_id)
        self._next_id += 2
        self._streams[stream.id] = stream
        self.send({"t": "open", "id": stream.id, **header})
        return stream

    def forget(self, stream: Stream) -> None:
        """Remove a stream; later frames for it are ignored."""
        stream.closed = True
        self._streams.pop(stream.id, None)

    def close(self) -> None:
        """Drop the connection; every stream's `on_close` is called, then ours."""
        if self.closed:
            return
        self.closed = True
        self._loop.unwatch(self._socket.fileno())
        self._socket.close()
        self._out.clear()
        for stream in list(self._streams.values()):
            self._close_stream(stream)
        self._call_drained()
        if self.on_close is not None:
            self.on_close()

    def _close_stream(self, stream: Stream) -> None:
        self.forget(stream)
        if stream.on_close is not None:
            stream.on_close()

    def _ready(self, events: int) -> None:
        if events & WRITE:
            self._flush()
        if events & READ and not self.closed:
            self._read()

    def _read(self) -> None:
        try:
            data = self._socket.recv(RECEIVE_BYTES)
            if not data:
                self.close()
            for header, payload in self._decoder.feed(data):
                self._handle(header, payload)
                if self.closed:
                    return
        except BlockingIOError:
            return
        except (OSError, ProtocolError):
            self.close()

    def _handle(self, header: Header, payload: bytes) -> None:
        kind, stream_id = header["t"], header.get("id", 0)
        if kind == "req":
            self._request(stream_id, header, payload)
        elif kind == "ping":
            self.send({"t": "pong"})
        elif (stream := self._streams.get(stream_id)) is None:
            return  # The agent closed it while the frame was in flight.
        elif kind == "data":
            self._take_data(stream, payload)
        elif kind == "eof":
            if stream.on_eof is not None:
                stream.on_eof()
        elif kind == "credit":
            amount = header.get("n")
            if not isinstance(amount, int) or not 0 < amount <= 1 << 30:
                raise ProtocolError("credit is not a number")
            stream.credit += amount
            if stream.on_credit is not None:
                stream.on_credit()
        elif kind == "cancel":
            self._close_stream(stream)

    def _request(self, stream_id: int, header: Header, payload: bytes) -> None:
        if stream_id % 2 == 0 or stream_id in self._streams:
            raise ProtocolError("request id is even or in use")
        stream = Stream(self, stream_id)
        window = header.get("window")
        if type(window) is int and 0 < window < WINDOW:
            stream.credit = window
        if len(self._streams) >= MAX_STREAMS:
            stream.fail("conflict", f"more than {MAX_STREAMS} streams are open on this connection")
            return
        self._streams[stream_id] = stream
        self._serve(stream, header, payload)

    def _take_data(self, stream: Stream, payload: bytes) -> None:
        stream.window -= len(payload)
        if stream.window < 0 or len(payload) > CHUNK:
            raise ProtocolError("data without credit")
        if stream.on_data is not None:
            stream.on_data(payload)
        else:
            stream.consumed(len(payload))

    def _flush(self) -> None:
        if self.closed:
            return
        try:
            while self._out:
                sent = self._socket.sendmsg([self._out[i] for i in range(min(len(self._out), 64))])
                self.backlog -= sent
                while sent:
                    first = self._out[0]
                    if sent < len(first):
                        self._out[0] = first[sent:]
                        break
                    sent -= len(first)
                    self._out.popleft()
        except BlockingIOError:
            pass
        except OSError:
            self.close()
            return
        waiting = bool(self._out)
        if waiting != self._waiting:
            self._waiting = waiting
            self._loop.watch(self._socket.fileno(), READ | (WRITE if waiting else 0), self._ready)
        if not waiting and self.on_drained:
            self._call_drained()

    def _call_drained(self) -> None:
        callbacks, self.on_drained = self.on_drained, set()
        for callback in callbacks:
            callback()
