"""Tunnels: TCP to ports inside, and from programs inside to the gateway."""

from __future__ import annotations

import os
import socket
import threading
from typing import TYPE_CHECKING

import anyio
import pytest

from warren.domain.errors import Conflict, InvalidRequest, NotFound

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from unit.guest.agent_workspace import AgentWorkspace
    from warren.core.agent.client import AgentClient, ByteStream, TunnelStream


@pytest.fixture
def served() -> Iterator[Callable[[Callable[[socket.socket], None]], int]]:
    """Listen on a port of this machine, which for an agent without a namespace is a port inside."""
    threads: list[threading.Thread] = []
    listeners: list[socket.socket] = []

    def serve(handler: Callable[[socket.socket], None]) -> int:
        listener = socket.create_server(("127.0.0.1", 0))
        listeners.append(listener)

        def accept() -> None:
            connection, _ = listener.accept()
            with connection:
                handler(connection)

        threads.append(threading.Thread(target=accept))
        threads[-1].start()
        return int(listener.getsockname()[1])

    yield serve
    for thread in threads:
        thread.join(60)
    for listener in listeners:
        listener.close()


def echo(connection: socket.socket) -> None:
    while data := connection.recv(1 << 16):
        connection.sendall(data)
    connection.sendall(b"END")


async def receive_all(stream: ByteStream) -> bytes:
    content = bytearray()
    while data := await stream.receive():
        content += data
    return bytes(content)


def test_bytes_go_both_ways_and_each_direction_ends_on_its_own(
    here: AgentWorkspace, served: Callable[[Callable[[socket.socket], None]], int]
) -> None:
    port = served(echo)
    content = os.urandom(5 << 20)

    async def story(link: AgentClient) -> None:
        stream = await link.connect_port(port)

        async def send() -> None:
            await stream.send(content)
            stream.send_eof()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(send)
            received = await receive_all(stream)
        assert received == content + b"END"
        end = await stream.wait()
        assert (end["sent"], end["received"]) == (len(content) + 3, len(content))
        await stream.aclose()

    here.do(story)


def test_nothing_listening_is_not_found_and_nothing_but_loopback_is_tried(here: AgentWorkspace) -> None:
    async def story(link: AgentClient) -> None:
        with socket.socket() as silent:
            # Held, so that no other process of this machine listens there.
            silent.bind(("127.0.0.1", 0))
            port = silent.getsockname()[1]
            with pytest.raises(NotFound, match=str(port)):
                await link.connect_port(port)
        for host in ("10.0.0.1", "169.254.169.254", "example.com", "0.0.0.0", ""):
            with pytest.raises(InvalidRequest, match="only the sandbox itself"):
                await link.connect_port(80, host)
        with pytest.raises(InvalidRequest, match="port"):
            await link.connect_port(70_000)

    here.do(story)


def test_a_reset_connection_is_an_error_not_an_end(
    here: AgentWorkspace, served: Callable[[Callable[[socket.socket], None]], int]
) -> None:
    def reset(connection: socket.socket) -> None:
        connection.recv(1)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")

    port = served(reset)

    async def story(link: AgentClient) -> None:
        stream = await link.connect_port(port)
        await stream.send(b"xx")
        with pytest.raises(Conflict, match="broke"):
            await receive_all(stream)

    here.do(story)


def test_closing_our_end_closes_theirs(
    here: AgentWorkspace, served: Callable[[Callable[[socket.socket], None]], int]
) -> None:
    ended = threading.Event()

    def wait_for_end(connection: socket.socket) -> None:
        while connection.recv(100):
            pass
        ended.set()

    port = served(wait_for_end)

    async def story(link: AgentClient) -> None:
        stream = await link.connect_port(port)
        await stream.send(b"hello")
        await stream.aclose()
        await anyio.to_thread.run_sync(ended.wait, 60)

    here.do(story)

    assert ended.is_set()


def test_a_program_inside_reaches_the_gateway_that_listens(here: AgentWorkspace) -> None:
    async def story(link: AgentClient) -> None:
        seen: list[str] = []

        async def answer(stream: TunnelStream) -> None:
            seen.append(stream.listener)
            request = await receive_all(stream)
            await stream.send(request.upper() * 100_000)
            stream.send_eof()
            await stream.wait()

        link.on_tunnel["proxy"] = answer
        port = await link.listen_port(0, "proxy")
        assert await link.listen_port(0, "proxy") == port
        with pytest.raises(Conflict):
            await link.listen_port(port, "another")

        def client() -> bytes:
            content = bytearray()
            with socket.create_connection(("127.0.0.1", port), 60) as sock:
                sock.sendall(b"quiet")
                sock.shutdown(socket.SHUT_WR)
                while data := sock.recv(1 << 16):
                    content += data
            return bytes(content)

        assert await anyio.to_thread.run_sync(client) == b"QUIET" * 100_000
        assert seen == ["proxy"]

    here.do(story)


def test_without_a_gateway_a_connection_inside_is_closed(here: AgentWorkspace) -> None:
    async def listen(link: AgentClient) -> int:
        return await link.listen_port(0, "unused")

    port = here.do(listen)

    with socket.create_connection(("127.0.0.1", port), 60) as sock:
        assert sock.recv(1) == b""


def test_a_link_without_a_handler_refuses_the_connection(here: AgentWorkspace) -> None:
    async def story(link: AgentClient) -> None:
        port = await link.listen_port(0, "refused")

        def client() -> bytes:
            with socket.create_connection(("127.0.0.1", port), 60) as sock:
                return sock.recv(1)

        assert await anyio.to_thread.run_sync(client) == b""

    here.do(story)
