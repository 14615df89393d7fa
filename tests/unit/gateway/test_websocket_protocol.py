"""WebSockets of clients that mean no good, or nothing at all, against a real server."""

from __future__ import annotations

import socket
import struct
import threading
import time
from typing import TYPE_CHECKING

import anyio
import pytest
import uvicorn
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from warren.gateway.api.bodies import ClientLeft
from warren.gateway.api.websockets import WebSocket
from warren.gateway.server.protocol import Guard, build_protocol
from warren.gateway.server.websocket_protocol import GuardedWebSocket, build_websocket_protocol

if TYPE_CHECKING:
    from collections.abc import Iterator

    from starlette.types import Receive, Scope, Send

DEADLINE_S = 60.0
KEY = b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
HEAD = b"GET /echo HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n" + KEY


class Server:
    """A server of two addresses: /echo sends back what it gets, /flood sends without end."""

    def __init__(self) -> None:
        self.guard = Guard(still_s=0.5)
        self.left = threading.Event()
        self.sent = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        config = uvicorn.Config(
            self._answer,
            interface="asgi3",
            http=build_protocol(self.guard),
            ws=build_websocket_protocol(self.guard),
            ws_max_size=100_000,
            ws_per_message_deflate=False,
            log_config=None,
            lifespan="off",
        )
        self.server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    @property
    def url(self) -> str:
        return f"ws://127.0.0.1:{self._listener.getsockname()[1]}"

    def connect(self) -> socket.socket:
        return socket.create_connection(self._listener.getsockname(), timeout=DEADLINE_S)

    def open(self) -> list[GuardedWebSocket]:
        return [each for each in self.server.server_state.connections if isinstance(each, GuardedWebSocket)]

    def stop(self) -> None:
        self.server.should_exit = True
        self._thread.join(DEADLINE_S)
        self._listener.close()
        assert not self._thread.is_alive()

    def _run(self) -> None:
        anyio.run(lambda: self.server.serve(sockets=[self._listener]), backend_options={"use_uvloop": True})

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]})
            await send({"type": "http.response.body", "body": b""})
            return
        websocket = WebSocket(scope, receive, send)
        await websocket.accept()
        try:
            while True:
                data = b"." * 65_536 if scope["path"] == "/flood" else await websocket.receive()
                await websocket.send(data)
                self.sent += len(data)
        except ClientLeft:
            self.left.set()


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server()
    yield server
    server.stop()


def test_an_upgraded_connection_outlives_the_patience_for_requests(server: Server) -> None:
    server.guard.head_s = 1.0
    with connect(f"{server.url}/echo") as client:
        client.send(b"one")
        assert client.recv(DEADLINE_S) == b"one"
        assert server.guard.waiting == {}
        with pytest.raises(TimeoutError):
            client.recv(1.5)
        client.send("two")
        assert client.recv(DEADLINE_S) == "two"


def test_a_message_over_the_limit_ends_it(server: Server) -> None:
    with connect(f"{server.url}/echo") as client:
        client.send(b"." * 100_001)
        with pytest.raises(ConnectionClosed) as ended:
            client.recv(DEADLINE_S)
    assert ended.value.rcvd is not None
    assert ended.value.rcvd.code == 1009
    assert server.left.wait(DEADLINE_S)


def test_text_that_is_none_ends_it(server: Server) -> None:
    with _handshake(server) as connection:
        connection.sendall(_frame(0x01, b"\xff\xfe"))
        assert _read_all(connection)[:4] == b"\x88\x02\x03\xef"
    assert server.left.wait(DEADLINE_S)


def test_empty_parts_of_a_message_without_end_are_not_collected(server: Server) -> None:
    with _handshake(server) as connection:
        connection.sendall(_frame(0x02, b"", fin=False))
        parts = _frame(0x00, b"", fin=False) * 2000
        _send_until_ended(connection, parts)
    assert server.left.wait(DEADLINE_S)


def test_pings_of_a_client_that_reads_nothing_end_it(server: Server) -> None:
    server.guard.still_s = 600
    with _handshake(server) as connection:
        _send_until_ended(connection, _frame(0x09, b"." * 125) * 500)
    assert server.left.wait(DEADLINE_S)


def test_a_client_that_never_reads_is_let_go_and_holds_little(server: Server) -> None:
    with _handshake(server, HEAD.replace(b"/echo", b"/flood")):
        assert server.left.wait(DEADLINE_S)
    # Only what the kernels of both ends hold was ever sent.
    assert server.sent < 32 << 20


@pytest.mark.parametrize(
    "head",
    [
        HEAD.replace(KEY, b""),
        HEAD.replace(b"/echo", b"/" + b"a" * 10_000),
        HEAD.replace(b"Version: 13", b"Version: 12"),
    ],
    ids=["no key", "an endless address", "an unknown version"],
)
def test_a_handshake_that_is_none_is_refused_and_closed(server: Server, head: bytes) -> None:
    with server.connect() as connection:
        connection.sendall(head + b"\r\n")
        answer = _read_all(connection)
    assert answer.startswith((b"HTTP/1.1 400", b"HTTP/1.1 426"))


def test_an_upgrade_with_another_method_is_an_ordinary_request(server: Server) -> None:
    with server.connect() as connection:
        connection.sendall(HEAD.replace(b"GET", b"POST") + b"Content-Length: 0\r\n\r\n")
        assert connection.recv(100).startswith(b"HTTP/1.1 200")


def test_when_the_server_ends_clients_are_told_to_come_back(server: Server) -> None:
    with connect(f"{server.url}/echo") as client:
        client.send(b"one")
        assert client.recv(DEADLINE_S) == b"one"
        server.server.should_exit = True
        with pytest.raises(ConnectionClosed) as ended:
            client.recv(DEADLINE_S)
    assert ended.value.rcvd is not None
    assert ended.value.rcvd.code == 1012
    assert "connect again" in ended.value.rcvd.reason


def _handshake(server: Server, head: bytes = HEAD) -> socket.socket:
    connection = server.connect()
    connection.sendall(head + b"\r\n")
    answer = b""
    while b"\r\n\r\n" not in answer:
        answer += connection.recv(1)
    assert answer.startswith(b"HTTP/1.1 101")
    return connection


def _frame(opcode: int, data: bytes, *, fin: bool = True) -> bytes:
    return struct.pack("!BB4x", opcode | (0x80 if fin else 0), 0x80 | len(data)) + data


def _send_until_ended(connection: socket.socket, data: bytes) -> None:
    until = time.monotonic() + DEADLINE_S
    try:
        while time.monotonic() < until:
            connection.sendall(data)
    except ConnectionError:
        return
    pytest.fail("the server takes everything, for ever")


def _read_all(connection: socket.socket) -> bytes:
    received = b""
    while piece := connection.recv(65_536):
        received += piece
    return received
