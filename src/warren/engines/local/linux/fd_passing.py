"""Frames with descriptors over a unix socket, between keeper, zygote and a process that becomes a sandbox."""

from __future__ import annotations

import asyncio
import os
import socket
from collections import deque
from typing import TYPE_CHECKING

from warren.guest.wire.frames import Decoder, Header, ProtocolError, encode

if TYPE_CHECKING:
    from collections.abc import Sequence

_MAX_FDS = 96
"""In one message: a workspace, counters, and the device nodes of a sandbox with GPUs (devices.NODES_MAX)."""
_MAX_WAITING = 256
"""Bound on received descriptors that were not taken: a zygote runs image code, which may send any number."""


def send(sock: socket.socket, header: Header, fds: Sequence[int] = ()) -> None:
    """Send one frame, which fits the socket's buffer."""
    data = b"".join(encode(header))
    sent = socket.send_fds(sock, [data], list(fds)) if fds else sock.send(data)
    if sent != len(data):
        raise BlockingIOError(f"only {sent} of {len(data)} bytes of a message could be sent")


class Receiver:
    """Collects frames and their descriptors. Descriptors that are not taken are closed."""

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        self._decoder = Decoder()
        self._frames: deque[Header] = deque()
        self._fds: deque[int] = deque()

    def receive(self) -> Header:
        """Block until the next frame; raises EOFError at the end."""
        while not self._frames:
            self._fill()
        return self._frames.popleft()

    async def receive_async(self) -> Header:
        """Wait for the next frame of a non-blocking socket; raises EOFError at the end."""
        while not self._frames:
            try:
                self._fill()
            except BlockingIOError:
                await wait_readable(self._socket)
        return self._frames.popleft()

    def take_fd(self) -> int:
        """Return the next descriptor. Raises ProtocolError when there is none."""
        if not self._fds:
            raise ProtocolError("a message came without its descriptor")
        return self._fds.popleft()

    def close(self) -> None:
        """Close the socket and every descriptor not taken."""
        while self._fds:
            os.close(self._fds.popleft())
        self._socket.close()

    def _fill(self) -> None:
        data, fds, _flags, _address = socket.recv_fds(self._socket, 1 << 16, _MAX_FDS)
        self._fds.extend(fds)
        if len(self._fds) > _MAX_WAITING:
            raise ProtocolError("more descriptors came than were requested")
        if not data:
            raise EOFError
        self._frames.extend(header for header, _payload in self._decoder.feed(data))


async def wait_readable(source: int | socket.socket) -> None:
    """Wait until a descriptor or socket can be read, or has ended."""
    loop = asyncio.get_running_loop()
    ready = loop.create_future()
    loop.add_reader(source, lambda: None if ready.done() else ready.set_result(None))
    try:
        await ready
    finally:
        loop.remove_reader(source)
