"""The channel over a unix socket, against a real socket in a thread."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import anyio
import pytest

from warren.domain.errors import SandboxLost
from warren.engines import unix_channel, unix_sockets

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable
    from pathlib import Path


def _serve(listener: socket.socket, talk: Callable[[socket.socket], None]) -> threading.Thread:
    def accept() -> None:
        peer, _ = listener.accept()
        with peer:
            talk(peer)

    thread = threading.Thread(target=accept)
    thread.start()
    return thread


def _echo(peer: socket.socket) -> None:
    while data := peer.recv(1 << 20):
        peer.sendall(data)


def test_bytes_go_there_and_back(tmp_path: Path) -> None:
    sent = bytes(range(256)) * 20_000

    async def story() -> bytes:
        channel = await unix_channel.connect(str(tmp_path / "s"))
        received = bytearray()
        async with anyio.create_task_group() as group:
            group.start_soon(channel.send, sent)
            while len(received) < len(sent):
                received += await channel.receive()
        await channel.aclose()
        return bytes(received)

    with unix_sockets.listen(str(tmp_path / "s")) as listener:
        thread = _serve(listener, _echo)
        received = anyio.run(story)
        thread.join(60)

    assert received == sent


def test_what_a_cancelled_caller_has_begun_to_send_is_sent_whole(tmp_path: Path) -> None:
    first, second = bytes(range(256)) * 60_000, b"and the next"
    received, may_read = bytearray(), threading.Event()

    def read(peer: socket.socket) -> None:
        may_read.wait(60)
        while data := peer.recv(1 << 20):
            received.extend(data)

    async def story() -> None:
        channel = await unix_channel.connect(str(tmp_path / "s"))
        async with anyio.create_task_group() as group:
            group.start_soon(channel.send, first)
            group.start_soon(channel.send, second)
            await anyio.wait_all_tasks_blocked()
            group.cancel_scope.cancel()
            may_read.set()
        await channel.aclose()

    with unix_sockets.listen(str(tmp_path / "s")) as listener:
        thread = _serve(listener, read)
        anyio.run(story)
        thread.join(60)

    assert received == first + second


def test_a_path_longer_than_a_socket_address_works(tmp_path: Path) -> None:
    folder = tmp_path / ("deep" * 20) / ("er" * 40)
    folder.mkdir(parents=True)
    path = str(folder / "agent.sock")

    async def story() -> bytes:
        channel = await unix_channel.connect(path)
        data = await channel.receive()
        await channel.aclose()
        return data

    with unix_sockets.listen(path) as listener:
        thread = _serve(listener, lambda peer: peer.sendall(b"hello"))
        assert anyio.run(story) == b"hello"
        thread.join(60)


def test_a_path_without_an_agent_is_a_lost_sandbox(tmp_path: Path) -> None:
    async def story(path: str) -> None:
        with pytest.raises(SandboxLost):
            await unix_channel.connect(path)

    anyio.run(story, str(tmp_path / "never"))
    unix_sockets.listen(str(tmp_path / "dead")).close()
    anyio.run(story, str(tmp_path / "dead"))


def test_a_closing_peer_ends_the_channel(tmp_path: Path) -> None:
    async def story() -> None:
        channel = await unix_channel.connect(str(tmp_path / "s"))
        assert await channel.receive() == b"last words"
        assert await channel.receive() == b""
        with pytest.raises(SandboxLost):
            await channel.send(bytes(1 << 24))
        await channel.aclose()

    with unix_sockets.listen(str(tmp_path / "s")) as listener:
        thread = _serve(listener, lambda peer: peer.sendall(b"last words"))
        anyio.run(story)
        thread.join(60)


def test_closing_wakes_a_waiting_receiver(tmp_path: Path) -> None:
    async def story() -> bytes | None:
        channel = await unix_channel.connect(str(tmp_path / "s"))
        received: bytes | None = None

        async def wait(*, task_status: anyio.abc.TaskStatus[None]) -> None:
            nonlocal received
            task_status.started()
            received = await channel.receive()

        with anyio.fail_after(60):
            async with anyio.create_task_group() as group:
                await group.start(wait)
                await channel.aclose()
                await channel.aclose()
        with pytest.raises(SandboxLost):
            await channel.send(b"x")
        return received

    with unix_sockets.listen(str(tmp_path / "s")) as listener:
        thread = _serve(listener, _echo)
        assert anyio.run(story) == b""
        thread.join(60)


def test_connecting_waits_for_room_in_a_full_queue(tmp_path: Path) -> None:
    async def story(listener: socket.socket) -> None:
        channels: list[unix_channel.UnixChannel] = []

        async def connect_one() -> None:
            channels.append(await unix_channel.connect(str(tmp_path / "s")))

        with anyio.fail_after(60):
            async with anyio.create_task_group() as group:
                for _ in range(4):
                    group.start_soon(connect_one)
                peers = [(await anyio.to_thread.run_sync(listener.accept))[0] for _ in range(4)]
        for end in channels:
            await end.aclose()
        for peer in peers:
            peer.close()
        assert len(channels) == 4

    with unix_sockets.listen(str(tmp_path / "s")) as listener:
        listener.listen(0)
        anyio.run(story, listener)
