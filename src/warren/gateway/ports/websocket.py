"""WebSocket proxy to a server inside a sandbox: messages, subprotocol and close codes, in both directions.

The sans-I/O client of `websockets` speaks the server's side; it bounds heads and messages and answers pings.
No extension is offered: nothing compressed by a sandbox is ever inflated here.
"""

from __future__ import annotations

import contextlib
import logging
from typing import TYPE_CHECKING

import anyio
from websockets.client import ClientProtocol
from websockets.exceptions import InvalidHandshake, InvalidStatus
from websockets.frames import CloseCode, Frame, Opcode
from websockets.protocol import State
from websockets.uri import WebSocketURI

from warren.domain.errors import SandboxLost, Unreachable
from warren.gateway.api.bodies import ClientLeft
from warren.gateway.api.websockets import SUBPROTOCOL, WebSocket
from warren.gateway.ports.headers import headers_in

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send
    from websockets.typing import Subprotocol

    from warren.core.ports.ports import PortConnection
    from warren.gateway.api.operations import Call
    from warren.gateway.ports.headers import Mount

MAX_MESSAGE = 2 << 20
"""For the server's messages; the client's have the usual limit."""
_MAX_PARTS = 4096
_CLOSE_S = 5.0
_STUCK_S = 60.0
"""The longest time that a server may read nothing."""
_SKIPPED = frozenset({b"host", b"upgrade", b"connection", b"content-length"})

_SILENT = logging.Logger("silent", logging.CRITICAL)  # noqa: LOG001 - outside of the tree: no handler, and no other level
"""For a library that logs all traffic at the level debug."""


def proxy_websocket(call: Call, sandbox_id: str, mount: Mount, target: bytes) -> ASGIApp:
    """Join both ends, as an ASGI application. It raises Unreachable."""

    async def serve(scope: Scope, receive: Receive, send: Send) -> None:
        port = mount.port
        async with call.service.ports.connect(call.caller, sandbox_id, port, "WEBSOCKET") as connection:
            client = WebSocket(scope, receive, send)
            server = _Server(connection, mount, scope, target)
            answer_s = call.settings.serve.port_answer_s
            with anyio.move_on_after(answer_s) as waiting:
                await server.open(headers_in(scope["headers"], mount, scope["scheme"], call.caller.request_id))
            if waiting.cancelled_caught:
                raise Unreachable(f"the server on port {port} did not answer in {answer_s:g} s")
            connection.answered("101")
            await client.accept(server.subprotocol)
            await _join(client, server)

    return serve


class _Server:
    """The server's side: a connection, and the protocol spoken on it."""

    def __init__(self, connection: PortConnection, mount: Mount, scope: Scope, target: bytes) -> None:
        path, _, query = target.decode("latin-1").partition("?")
        offered: list[Subprotocol] = [each for each in scope["subprotocols"] if each != SUBPROTOCOL]
        self._connection = connection
        self._mount = mount
        self._parts: list[bytes] = []
        self._opcode = Opcode.TEXT
        self._sending = anyio.Lock(fast_acquire=True)
        self._protocol = ClientProtocol(
            WebSocketURI(False, "localhost", mount.port, path, query),
            subprotocols=offered or None,
            max_size=MAX_MESSAGE,
            logger=_SILENT,
        )

    @property
    def subprotocol(self) -> str | None:
        """What the server chose."""
        return self._protocol.subprotocol

    async def open(self, headers: list[tuple[bytes, bytes]]) -> None:
        """Do the handshake. Raises Unreachable when the server refuses, or does not speak WebSocket."""
        request = self._protocol.connect()
        for name, value in headers:
            if name not in _SKIPPED and not name.startswith(b"sec-websocket-"):
                request.headers[name.decode("latin-1")] = value.decode("latin-1")
        self._protocol.send_request(request)
        await self._flush()
        while self._protocol.state is State.CONNECTING and self._protocol.handshake_exc is None:
            await self._read()
        # Frames that came with the answer may have closed it already; `messages` handles that.
        if self._protocol.handshake_exc is not None:
            raise self._refused(self._protocol.handshake_exc)

    async def messages(self, client: WebSocket) -> None:
        """Pass on what the server says, until it ends."""
        while True:
            for event in self._protocol.events_received():
                if isinstance(event, Frame) and (message := self._assemble(event)) is not None:
                    await client.send(message)
            if self._protocol.close_expected() or self._protocol.state is State.CLOSED:
                return
            if not await self._read():
                return

    async def send(self, message: bytes | str) -> None:
        """Send a message."""
        if self._protocol.state is State.OPEN:
            if isinstance(message, str):
                self._protocol.send_text(message.encode())
            else:
                self._protocol.send_binary(message)
        with anyio.fail_after(_STUCK_S):
            await self._flush()

    async def close(self, code: int, reason: str) -> None:
        """Say goodbye as the client did, and give the server a moment to answer."""
        if self._protocol.state is State.OPEN:
            if code == CloseCode.NO_STATUS_RCVD:
                self._protocol.send_close()
            else:
                # A client that broke off sent no code, and the server needs one.
                self._protocol.send_close(CloseCode.GOING_AWAY if code == CloseCode.ABNORMAL_CLOSURE else code, reason)
        with anyio.move_on_after(_CLOSE_S):
            await self._flush()
            while self._protocol.state is not State.CLOSED and await self._read():
                self._protocol.events_received()

    def end(self) -> tuple[int, str]:
        """Return code and reason for the client's side: the server's, or those of its violation."""
        close = self._protocol.close_rcvd or self._protocol.close_sent
        if close is None or close.code == CloseCode.ABNORMAL_CLOSURE:
            return CloseCode.BAD_GATEWAY, "the server inside broke off"
        return (CloseCode.NORMAL_CLOSURE, "") if close.code == CloseCode.NO_STATUS_RCVD else (close.code, close.reason)

    def _assemble(self, frame: Frame) -> bytes | str | None:
        """Assemble the parts of a message. Raises ValueError for text that is not UTF-8."""
        if frame.opcode in {Opcode.TEXT, Opcode.BINARY}:
            self._opcode, self._parts = frame.opcode, []
        elif frame.opcode is not Opcode.CONT:
            return None
        self._parts.append(bytes(frame.data))
        if len(self._parts) > _MAX_PARTS:
            raise ValueError("too many parts")
        if not frame.fin:
            return None
        whole, self._parts = b"".join(self._parts), []
        return whole.decode() if self._opcode is Opcode.TEXT else whole

    async def _read(self) -> bool:
        """Take in what comes next; False at the end of the connection."""
        try:
            data = await self._connection.receive()
        except (Unreachable, SandboxLost):
            data = b""
        if data:
            self._protocol.receive_data(data)
        else:
            self._protocol.receive_eof()
        # The current sender also flushes the replies to this data; waiting for it would stop the reading.
        if not self._sending.locked():
            await self._flush()
        return bool(data)

    async def _flush(self) -> None:
        # WHY: large messages are sent in pieces, and a pong must not come between them.
        async with self._sending:
            while waiting := self._protocol.data_to_send():
                for data in waiting:
                    if data:
                        await self._connection.send(data)

    def _refused(self, failure: Exception | None) -> Unreachable:
        if isinstance(failure, InvalidStatus):
            self._connection.status = str(failure.response.status_code)
            why = f"refused the WebSocket with status {failure.response.status_code}"
        elif isinstance(failure, InvalidHandshake):
            why = "does not answer as a WebSocket server does"
        else:
            why = "ended the connection without an answer"
        return Unreachable(f"the server on port {self._mount.port} {why}")


async def _join(client: WebSocket, server: _Server) -> None:
    """Pass messages both ways until one side ends, and end the other as that did."""
    ending: tuple[int, str] | None = None
    async with anyio.create_task_group() as tasks:

        async def pass_in() -> None:
            nonlocal ending
            try:
                while True:
                    await server.send(await client.receive())
            except (ClientLeft, TimeoutError) as exc:
                ending = client.left if isinstance(exc, ClientLeft) else (CloseCode.BAD_GATEWAY, "")
            tasks.cancel_scope.cancel()

        tasks.start_soon(pass_in)
        try:
            await server.messages(client)
        except ValueError:
            ending = CloseCode.INVALID_DATA, "an invalid message"
        except ClientLeft:
            ending = client.left
        tasks.cancel_scope.cancel()
    if ending is not None:
        await server.close(*ending)
    with contextlib.suppress(ClientLeft):
        await client.close(*(ending or server.end()))
