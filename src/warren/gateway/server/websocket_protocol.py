"""WebSocket connections: limits for clients that send without reading, or read without answering.

uvicorn waits for ever to deliver the last bytes to a client that reads none, answers every ping of one that reads no
answers, and leaves a request open and unanswered that its WebSocket parser refuses.
"""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Any

from uvicorn.protocols.utils import ClientDisconnected
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

if TYPE_CHECKING:
    import asyncio

    from websockets.frames import Frame

    from warren.gateway.server.protocol import Guard

MESSAGE_BYTES = 1 << 20
PING_S = 20.0
RESTART = "the service stops: connect again in a moment"
_MAX_FRAGMENTS = 1024
_MAX_UNREAD = 1 << 20
"""Bytes of pongs and other small frames that are sent without waiting for the client to read."""
_UNSENT = 128 << 10
"""Bytes in the kernel's send queue: more would only delay everything behind them, such as the echo of an interrupt."""
_END_S = 5.0
_BAD_REQUEST = (
    b"HTTP/1.1 400 Bad Request\r\ncontent-type: text/plain; charset=utf-8\r\n"
    b"content-length: 45\r\nconnection: close\r\n\r\nThe request's head is no WebSocket handshake."
)


def build_websocket_protocol(guard: Guard) -> type[GuardedWebSocket]:
    """Build the class that a server makes one of for each connection that becomes a WebSocket."""
    return type("WebSocket", (GuardedWebSocket,), {"guard": guard})


class GuardedWebSocket(WebSocketsSansIOProtocol):
    """One WebSocket connection."""

    guard: Guard

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._unread = 0
        self._heard_at = 0.0
        self._timers: dict[str, asyncio.TimerHandle] = {}

    @property
    def is_open(self) -> bool:
        """Whether it is accepted, and neither side has closed it."""
        return self.handshake_complete and not self.close_sent and not self.transport.is_closing()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take over a connection from HTTP."""
        super().connection_made(transport)
        raw = transport.get_extra_info("socket")
        if raw is not None and raw.family in {socket.AF_INET, socket.AF_INET6}:
            raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, _UNSENT)

    def connection_lost(self, exc: Exception | None) -> None:
        """Let go of everything."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse bytes; the first are the whole request, which HTTP has read before."""
        self._heard_at = self.loop.time()
        super().data_received(data)
        if not self.handshake_initiated:
            self.transport.write(_BAD_REQUEST)
            self.close_sent = True
            self._close()

    def handle_cont(self, event: Frame) -> None:
        """Take a part of a message. The number of parts is limited too: empty ones add nothing to its size."""
        if len(self.frames) >= _MAX_FRAGMENTS:
            self.transport.abort()
        else:
            super().handle_cont(event)

    def handle_ping(self) -> None:
        """Answer a ping, unless the client reads no answers."""
        if self.transport.get_write_buffer_size() > _MAX_UNREAD:
            self.transport.abort()
        else:
            super().handle_ping()

    def pause_writing(self) -> None:
        """Watch a client that reads too slowly."""
        super().pause_writing()
        self._unread = self.transport.get_write_buffer_size()
        self._start("reader", self.guard.still_s, self._check_reader)

    def resume_writing(self) -> None:
        """Stop watching: it has read most of the data."""
        if (timer := self._timers.pop("reader", None)) is not None:
            timer.cancel()
        super().resume_writing()

    def keepalive_timeout(self) -> None:
        """Close a client that does not answer a ping, unless the ping or the pong may still be in a buffer."""
        if self.writable.is_set() and not self.read_paused and self._heard_at < self.ping_sent_at:
            super().keepalive_timeout()
            self._close()
        else:
            self.pong_timer = self.loop.call_later(PING_S, self.keepalive_timeout)

    def shutdown(self) -> None:
        """Close with 1012 because the service stops; the sandbox goes on."""
        if self.is_open:
            self.queue.put_nowait({"type": "websocket.disconnect", "code": 1012, "reason": RESTART})
            self.conn.send_close(1012, RESTART)
            self.transport.write(b"".join(self.conn.data_to_send()))
            self.stop_keepalive()
            self._close()
        elif not self.handshake_complete:
            super().shutdown()

    async def run_asgi(self) -> None:
        """Serve it, and end the connection even if the client never reads the last bytes."""
        await super().run_asgi()
        self._start("end", self.close_timeout + _END_S, self.transport.abort)

    async def send(self, message: Any) -> None:
        """Send a message of the application. Raises OSError when the client is gone."""
        await self.writable.wait()
        if self.transport.is_closing():
            raise ClientDisconnected
        await super().send(message)
        if self.initial_response is not None and self.close_sent:
            # WHY: a refusal completes the handshake too, but uvicorn logs it as one that never came.
            self.handshake_complete = True

    def _close(self) -> None:
        self.transport.close()
        self._start("end", _END_S, self.transport.abort)

    def _check_reader(self) -> None:
        del self._timers["reader"]
        left = self.transport.get_write_buffer_size()
        if left >= self._unread:
            self.transport.abort()
        else:
            self._unread = left
            self._start("reader", self.guard.still_s, self._check_reader)

    def _start(self, what: str, after_s: float, act: Any) -> None:
        if what not in self._timers and not self.disconnected:
            self._timers[what] = self.loop.call_later(after_s, act)
