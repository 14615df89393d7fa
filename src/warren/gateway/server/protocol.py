"""HTTP connections: limits of bytes and time for clients that are not authenticated yet.

uvicorn and its parser limit neither the head of a request nor the time it takes, and wait for ever for a client that
stops sending in the middle of a body, or that does not read its answer.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

if TYPE_CHECKING:
    import asyncio

TOO_LARGE = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-type: text/plain; charset=utf-8\r\n"
    b"content-length: 29\r\nconnection: close\r\n\r\nThe request's head is too big"
)


@dataclass(slots=True)
class Guard:
    """The limits of all connections, and the idle ones, longest idle first."""

    head_bytes: int = 64 << 10
    """Bytes in a row that are no content: the head of a request, or the framing between chunks of its body."""
    head_s: float = 20.0
    """From the first byte of a request, or from connecting, to the end of its head."""
    still_s: float = 60.0
    """The longest time without a byte of an awaited body, or without a byte read of an answer."""
    connections: int = 4096
    """Above this many connections, the longest idle one is closed."""
    waiting: dict[GuardedProtocol, None] = field(default_factory=dict)


def build_protocol(guard: Guard) -> type[GuardedProtocol]:
    """Build the class that a server makes one of for each connection."""
    return type("Protocol", (GuardedProtocol,), {"guard": guard})


class GuardedProtocol(HttpToolsProtocol):
    """One connection. A request in one piece, on a connection that was used before, costs no timer."""

    guard: Guard

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._passed = 0
        self._has_head = False
        self._heard_at = 0.0
        self._unread = 0
        self._is_upgraded = False
        self._timers: dict[str, asyncio.TimerHandle] = {}

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        """Wait for a request; above the limit, close the longest idle connection."""
        super().connection_made(transport)
        self._await_head()
        if len(self.connections) > self.guard.connections:
            next(iter(self.guard.waiting)).transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Let go of everything."""
        self._let_go()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse bytes; close the connection when too many of them are no content."""
        self._passed += len(data)
        self._heard_at = self.loop.time()
        super().data_received(data)
        if self.transport.is_closing() or self._is_upgraded:
            return
        if self._passed > self.guard.head_bytes:
            self.transport.write(TOO_LARGE)
            self.transport.close()
        elif self.cycle is None or self.cycle.response_complete:
            self._await_head()
        elif self.cycle.more_body:
            self._start("body", self.guard.still_s, self._check_sender)

    def on_message_begin(self) -> None:
        """Begin a request."""
        self._has_head = False
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header."""
        # Trailers after a body are ignored: the request may already be running.
        if not self._has_head:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Take a request whose head is complete."""
        self._passed = 0
        self._has_head = True
        self.guard.waiting.pop(self, None)
        self._stop("head")
        super().on_headers_complete()

    def handle_websocket_upgrade(self) -> None:
        """Hand the connection over to the WebSocket protocol; abort it while another request is being answered."""
        if self.cycle is not None and not self.cycle.response_complete:
            self.transport.abort()
            return
        self._is_upgraded = True
        self._let_go()
        super().handle_websocket_upgrade()

    def on_body(self, body: bytes) -> None:
        """Take a part of a body."""
        self._passed = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        """Take the end of a request."""
        self._passed = 0
        super().on_message_complete()

    def pause_writing(self) -> None:
        """Watch a client that reads too slowly."""
        super().pause_writing()
        self._unread = self.transport.get_write_buffer_size()
        self._start("answer", self.guard.still_s, self._check_reader)

    def resume_writing(self) -> None:
        """Stop watching: it has read most of the answer."""
        self._stop("answer")
        super().resume_writing()

    def timeout_keep_alive_handler(self) -> None:
        """Close an idle connection; its client may still read the last answer for `still_s`."""
        super().timeout_keep_alive_handler()
        self._start("end", self.guard.still_s, self.transport.abort)

    def _should_upgrade(self) -> bool:
        return self.scope["method"] == "GET" and bool(super()._should_upgrade())

    def _let_go(self) -> None:
        self.guard.waiting.pop(self, None)
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    def _await_head(self) -> None:
        """Start the timer of the next request's head; further bytes of it do not extend it."""
        self.guard.waiting.setdefault(self)
        self._start("head", self.guard.head_s, self.timeout_keep_alive_handler)

    def _check_sender(self) -> None:
        """Abort when a body has stalled; while we do not read, the client need not send."""
        del self._timers["body"]
        if self.cycle.response_complete or not self.cycle.more_body:
            return
        left_s = self.guard.still_s - (0 if self.flow.read_paused else self.loop.time() - self._heard_at)
        if left_s <= 0:
            self.transport.abort()
        else:
            self._start("body", left_s, self._check_sender)

    def _check_reader(self) -> None:
        """Abort when the client has read nothing since the last check."""
        del self._timers["answer"]
        left = self.transport.get_write_buffer_size()
        if left >= self._unread:
            self.transport.abort()
        else:
            self._unread = left
            self._start("answer", self.guard.still_s, self._check_reader)

    def _start(self, what: str, after_s: float, act: Any) -> None:
        if what not in self._timers:
            self._timers[what] = self.loop.call_later(after_s, act)

    def _stop(self, what: str) -> None:
        if (timer := self._timers.pop(what, None)) is not None:
            timer.cancel()
