"""Connections of clients that mean no good, or nothing at all, against a real server."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from typing import TYPE_CHECKING

import anyio
import pytest
import uvicorn

from warren.gateway.server.protocol import Guard, build_protocol

if TYPE_CHECKING:
    from collections.abc import Iterator

    from starlette.types import Message, Receive, Scope, Send

DEADLINE_S = 60.0
HEAD = b"POST /echo HTTP/1.1\r\nHost: x\r\n"
LARGE = 32 << 20


class Server:
    """A server of three addresses: /echo answers with the size of the body, /large with very much, others at once."""

    def __init__(self, guard: Guard) -> None:
        self.guard = guard
        self.headers: list[tuple[bytes, bytes]] = []
        self.left = threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0))
        config = uvicorn.Config(
            self._answer, interface="asgi3", http=build_protocol(guard), log_config=None, lifespan="off"
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    @property
    def address(self) -> tuple[str, int]:
        host, port = self._listener.getsockname()
        return host, port

    def connect(self) -> socket.socket:
        return socket.create_connection(self.address, timeout=DEADLINE_S)

    def stop(self) -> None:
        self._server.should_exit = True
        self._thread.join(DEADLINE_S)
        self._listener.close()
        assert not self._thread.is_alive()

    def _run(self) -> None:
        anyio.run(lambda: self._server.serve(sockets=[self._listener]), backend_options={"use_uvloop": True})

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        size = 0
        message: Message = {"type": "http.request", "more_body": scope["path"] == "/echo"}
        while message.get("more_body"):
            message = await receive()
            size += len(message.get("body", b""))
        self.headers = list(scope["headers"])
        if message["type"] == "http.disconnect":
            self.left.set()
            return
        body = b"." * LARGE if scope["path"] == "/large" else b"%d" % size
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(body))]})
        await send({"type": "http.response.body", "body": body})


def read_all(connection: socket.socket) -> bytes:
    """Read until the server closes."""
    received = b""
    with contextlib.suppress(ConnectionResetError):
        while piece := connection.recv(1 << 20):
            received += piece
    return received


def send_until_refused(connection: socket.socket, piece: bytes, most: int) -> int:
    """Send the same again and again; return how much the server let us send."""
    sent = 0
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        while sent < most:
            connection.sendall(piece)
            sent += len(piece)
    return sent


@contextlib.contextmanager
def serving(guard: Guard) -> Iterator[Server]:
    server = Server(guard)
    try:
        yield server
    finally:
        server.stop()


@pytest.fixture(scope="module")
def patient() -> Iterator[Server]:
    with serving(Guard()) as server:
        yield server


@pytest.fixture(scope="module")
def hasty() -> Iterator[Server]:
    # Long enough for a client of a busy machine that does what it can.
    with serving(Guard(head_s=1.0, still_s=1.5)) as server:
        yield server


def test_requests_on_one_connection_are_answered_one_after_the_other(hasty: Server) -> None:
    with hasty.connect() as connection:
        connection.sendall((HEAD + b"Content-Length: 3\r\n\r\nabc") * 3 + HEAD + b"Connection: close\r\n\r\n")
        assert read_all(connection).count(b"HTTP/1.1 200 OK") == 4


@pytest.mark.parametrize(
    ("begun", "piece"),
    [
        (b"GET /", b"a" * 8192),
        (HEAD + b"X: ", b"a" * 8192),
        (HEAD, b"".join(b"x%d: y\r\n" % number for number in range(500))),
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\n0\r\n", b"x: y\r\n" * 500),
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\n1;", b"a" * 8192),
    ],
    ids=["address", "one header", "many headers", "trailers", "chunk extension"],
)
def test_what_is_no_content_ends_soon_or_the_connection_does(patient: Server, begun: bytes, piece: bytes) -> None:
    with patient.connect() as connection:
        connection.sendall(begun)
        assert send_until_refused(connection, piece, 64 << 20) < 32 << 20


def test_a_head_that_is_too_large_is_told_so(patient: Server) -> None:
    with patient.connect() as connection:
        connection.sendall(HEAD + b"X: " + b"a" * (patient.guard.head_bytes + 1))
        assert read_all(connection).startswith(b"HTTP/1.1 431 ")


def test_content_of_any_size_is_no_head(patient: Server) -> None:
    with patient.connect() as connection:
        connection.sendall(HEAD + b"Connection: close\r\nContent-Length: %d\r\n\r\n" % LARGE)
        connection.sendall(b"." * LARGE)
        assert read_all(connection).endswith(b"%d" % LARGE)


def test_trailers_do_not_become_headers_of_a_request_that_is_under_way(patient: Server) -> None:
    with patient.connect() as connection:
        chunked = b"Connection: close\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\nX-Late: 1\r\n\r\n"
        connection.sendall(HEAD + chunked)
        assert read_all(connection).endswith(b"\r\n\r\n1")
    assert b"x-late" not in dict(patient.headers)


@pytest.mark.parametrize("begun", [b"", b"GET / HTTP/1.1\r\nHost:", b"\r\n"], ids=["nothing", "half a head", "line"])
def test_a_connection_without_a_request_is_closed(hasty: Server, begun: bytes) -> None:
    with hasty.connect() as connection:
        connection.sendall(begun)
        assert read_all(connection) == b""


def test_a_head_that_comes_drop_by_drop_is_not_waited_for(hasty: Server) -> None:
    with hasty.connect() as connection:
        began = time.monotonic()
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            connection.sendall(b"GET / HTTP/1.1\r\n")
            while time.monotonic() < began + DEADLINE_S:
                connection.sendall(b"X: y\r\n")
                time.sleep(0.02)
        assert time.monotonic() < began + DEADLINE_S / 2


def test_a_second_head_is_waited_for_no_longer_than_the_first(hasty: Server) -> None:
    with hasty.connect() as connection:
        connection.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        received = connection.recv(65_536)
        connection.sendall(b"GET / HTTP/1.1\r\n")
        assert (received + read_all(connection)).count(b"HTTP/1.1 200 OK") == 1


def test_a_body_that_stops_coming_ends_its_request(hasty: Server) -> None:
    hasty.left.clear()
    with hasty.connect() as connection:
        connection.sendall(HEAD + b"Content-Length: 10\r\n\r\nhalf")
        assert read_all(connection) == b""
    assert hasty.left.wait(DEADLINE_S)


def test_an_unread_answer_is_not_kept(hasty: Server) -> None:
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.settimeout(DEADLINE_S)
        connection.connect(hasty.address)
        connection.sendall(b"GET /large HTTP/1.1\r\nHost: x\r\n\r\n")
        # The other side has closed when a byte sent to it comes back as a reset.
        deadline = time.monotonic() + DEADLINE_S
        with contextlib.suppress(ConnectionResetError, BrokenPipeError):
            while time.monotonic() < deadline:
                connection.sendall(b"\r\n")
                time.sleep(0.05)
        assert time.monotonic() < deadline


def test_an_answer_that_is_read_slowly_arrives(hasty: Server) -> None:
    with hasty.connect() as connection:
        connection.sendall(b"GET /large HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        received = 0
        while piece := connection.recv(1 << 20):
            received += len(piece)
            time.sleep(0.04)
        assert received > LARGE


def test_those_who_ask_for_nothing_make_room_for_those_who_do() -> None:
    with serving(Guard(connections=10)) as server, contextlib.ExitStack() as crowd:
        for _ in range(50):
            crowd.enter_context(server.connect())
        with server.connect() as connection:
            connection.sendall(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            assert read_all(connection).startswith(b"HTTP/1.1 200 OK")
        assert len(server.guard.waiting) <= 10
