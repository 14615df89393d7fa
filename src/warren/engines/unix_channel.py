"""A Channel over a unix socket, by which the engines of this host reach their agents."""

from __future__ import annotations

import asyncio
import contextlib
import socket

import anyio

from warren.domain.errors import SandboxLost
from warren.engines.unix_sockets import short_path

RECEIVE_BYTES = 1 << 20
BUFFER_BYTES = 1 << 20
"""Requested for each direction; `net.core.wmem_max` bounds it."""
CONNECT_RETRY_S = 0.002
CONNECT_DEADLINE_S = 5.0
_FAIR_SHARE = 4 << 20
"""Bytes after which a busy channel lets the other tasks run: `sock_recv` does not yield while data is there."""


class UnixChannel:
    """A duplex byte stream to one agent. One task may receive while any number send."""

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
            sock.setsockopt(socket.SOL_SOCKET, option, BUFFER_BYTES)
        self._socket = sock
        self._sending = asyncio.Lock()
        self._in_use = 0
        self._closed = False
        self._since_yield = 0

    async def send(self, data: bytes) -> None:
        """Send all of `data`, also when the caller is cancelled meanwhile. Raises SandboxLost."""
        sent = 0 if self._sending.locked() else self._send_some(data)
        if sent < len(data):
            with anyio.CancelScope(shield=True):
                async with self._sending:
                    await self._send_rest(memoryview(data)[sent:])

    def _send_some(self, data: bytes) -> int:
        """Send what fits without waiting, which nearly always is everything."""
        self._check_open()
        try:
            return self._socket.send(data)
        except BlockingIOError:
            return 0
        except OSError as exc:
            raise _refused(exc) from exc

    async def _send_rest(self, data: memoryview) -> None:
        self._check_open()
        self._in_use += 1
        try:
            await asyncio.get_running_loop().sock_sendall(self._socket, data)
        except OSError as exc:
            raise _refused(exc) from exc
        finally:
            self._release()

    async def receive(self) -> bytes:
        """Return the next bytes, or b"" when the sandbox is gone."""
        if self._closed:
            return b""
        self._in_use += 1
        try:
            data = await asyncio.get_running_loop().sock_recv(self._socket, RECEIVE_BYTES)
        except OSError:
            return b""
        finally:
            self._release()
        self._since_yield += len(data)
        if self._since_yield >= _FAIR_SHARE:
            self._since_yield = 0
            await asyncio.sleep(0)
        return data

    async def aclose(self) -> None:
        """Close our end. The sandbox lives on. Safe to call twice."""
        if self._closed:
            return
        self._closed = True
        # Closing a descriptor never wakes a task that waits on it; shutdown does, and the last user closes.
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        if not self._in_use:
            self._socket.close()

    def _check_open(self) -> None:
        if self._closed:
            raise SandboxLost("the channel to the sandbox is closed")

    def _release(self) -> None:
        self._in_use -= 1
        if self._closed and not self._in_use:
            self._socket.close()


def _refused(error: OSError) -> SandboxLost:
    return SandboxLost(f"the sandbox does not take data any more: {error.strerror}")


async def connect(path: str) -> UnixChannel:
    """Connect to the agent that listens at `path`. Raises SandboxLost when none does."""
    deadline = asyncio.get_running_loop().time() + CONNECT_DEADLINE_S
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        sock.setblocking(False)
        while True:
            try:
                with short_path(path) as short:
                    sock.connect(short)
                return UnixChannel(sock)
            except BlockingIOError:
                # The listener's queue is full. Unlike TCP this is not "in progress": no event follows.
                if asyncio.get_running_loop().time() > deadline:
                    raise SandboxLost(f"the agent takes no connection for {CONNECT_DEADLINE_S:g} seconds") from None
                await asyncio.sleep(CONNECT_RETRY_S)
    except OSError as exc:
        sock.close()
        raise SandboxLost("no agent listens there: the sandbox is stopped or gone") from exc
    except BaseException:
        sock.close()
        raise
