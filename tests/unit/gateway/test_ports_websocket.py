"""WebSockets to servers inside: both directions at once, on one connection."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import anyio
from websockets.frames import Frame, Opcode
from websockets.http11 import Request
from websockets.server import ServerProtocol

from warren.core.ports.ports import PortConnection
from warren.gateway.ports.headers import Mount
from warren.gateway.ports.websocket import _Server

if TYPE_CHECKING:
    from warren.gateway.api.websockets import WebSocket

MESSAGE = b"x" * 100_000


class Slow(PortConnection):
    """A connection on which what is large goes out in two pieces, the second when the other end has read the first."""

    def __init__(self) -> None:
        self.far = ServerProtocol()
        self.received: list[Frame] = []
        self.is_half_sent, self.may_go = anyio.Event(), anyio.Event()
        self._send_back, self._receive = anyio.create_memory_object_stream[bytes](100)

    async def send(self, data: bytes) -> None:
        if len(data) < len(MESSAGE):
            self._take(data)
            return
        self._take(data[:1000])
        self.is_half_sent.set()
        await self.may_go.wait()
        self._take(data[1000:])

    async def receive(self) -> bytes:
        return await self._receive.receive()

    def ping(self) -> None:
        self.far.send_ping(b"there?")
        self._say()

    def close(self) -> None:
        self._send_back.close()
        self._receive.close()

    def _take(self, data: bytes) -> None:
        self.far.receive_data(data)
        for event in self.far.events_received():
            if isinstance(event, Frame):
                self.received.append(event)
            elif isinstance(event, Request):
                self.far.send_response(self.far.accept(event))
        self._say()

    def _say(self) -> None:
        for data in self.far.data_to_send():
            self._send_back.send_nowait(data)


def test_an_answer_to_a_ping_does_not_come_between_the_pieces_of_a_message() -> None:
    async def story() -> None:
        connection = Slow()
        server = _Server(connection, Mount("/p", 80), {"subprotocols": []}, b"/")
        with contextlib.closing(connection), anyio.fail_after(60):
            await server.open([])
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(server.send, MESSAGE)
                await connection.is_half_sent.wait()
                tasks.start_soon(server.messages, _SILENT)
                connection.ping()
                await anyio.wait_all_tasks_blocked()
                connection.may_go.set()
                await anyio.wait_all_tasks_blocked()
                tasks.cancel_scope.cancel()
        assert connection.far.parser_exc is None
        assert [(frame.opcode, bytes(frame.data)) for frame in connection.received] == [
            (Opcode.BINARY, MESSAGE),
            (Opcode.PONG, b"there?"),
        ]

    anyio.run(story)


class _Silent:
    """A client to whom nothing is said."""


_SILENT: WebSocket = _Silent()  # type: ignore[assignment]
