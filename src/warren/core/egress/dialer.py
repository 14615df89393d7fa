"""Egress connections, over TCP and TLS, to addresses that were checked.

1. Nothing is resolved here: a DNS server cannot change its answer between the check and the connect.
2. Proxies and certificates of the environment are ignored; only those of the settings count.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import os
import socket
from typing import TYPE_CHECKING, Protocol

import anyio
from anyio.abc import ByteStream

if TYPE_CHECKING:
    import ssl
    from collections.abc import Sequence

    from anyio.abc import TaskGroup
    from anyio.streams.tls import TLSStream


RECEIVE_BYTES = 256 << 10
CONNECT_S = 15.0
"""For all addresses of a name."""
_NEXT_S = 0.3
"""The delay before the next address is tried in parallel."""
_FAIR_SHARE = 1 << 20
"""Bytes after which a busy connection yields: `sock_recv` does not yield while data is available."""


class Unreached(Exception):
    """The connection failed. The sentence is for the program, and names no internal address."""

    def __init__(self, why: str, *, is_late: bool = False) -> None:
        super().__init__(why)
        self.is_late = is_late


class Outside(Protocol):
    """A connection to a server."""

    address: str

    async def send(self, data: bytes) -> None:
        """Send all data. Raises OSError."""

    async def receive(self) -> bytes:
        """Return the next bytes, or b"" at the end. Raises OSError."""

    async def send_eof(self) -> None:
        """Half-close the connection, where the protocol can."""

    @property
    def has_news(self) -> bool:
        """Whether data or the end has arrived: then the connection cannot take another request."""

    async def aclose(self) -> None:
        """Close the connection. Safe to call twice."""


class PlainOutside:
    """A TCP connection. One task may receive while another sends."""

    def __init__(self, sock: socket.socket, address: str) -> None:
        self.address = address
        self._socket = sock
        self._early = b""
        self._since_yield = 0

    def put_back(self, data: bytes) -> None:
        """Return these bytes from `receive` first."""
        self._early = data

    async def send(self, data: bytes) -> None:
        """Send all data. Raises OSError."""
        await asyncio.get_running_loop().sock_sendall(self._socket, data)

    async def receive(self) -> bytes:
        """Return the next bytes, or b"" at the end. Raises OSError."""
        if self._early:
            data, self._early = self._early, b""
            return data
        data = await asyncio.get_running_loop().sock_recv(self._socket, RECEIVE_BYTES)
        self._since_yield += len(data)
        if self._since_yield >= _FAIR_SHARE:
            self._since_yield = 0
            await asyncio.sleep(0)
        return data

    async def send_eof(self) -> None:
        """Half-close the connection."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)

    @property
    def has_news(self) -> bool:
        """Whether data or the end has arrived."""
        try:
            self._socket.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return False
        except OSError:
            return True
        return True

    async def aclose(self) -> None:
        """Close the connection. Safe to call twice; no task may be using it."""
        self._socket.close()


class SecureOutside:
    """A TLS connection to a verified server."""

    def __init__(self, stream: TLSStream, plain: PlainOutside) -> None:
        self.address = plain.address
        self._stream = stream
        self._plain = plain

    async def send(self, data: bytes) -> None:
        """Send all data. Raises OSError."""
        try:
            await self._stream.send(data)
        except (anyio.BrokenResourceError, anyio.ClosedResourceError) as error:
            raise ConnectionResetError("the connection broke") from error

    async def receive(self) -> bytes:
        """Return the next bytes, or b"" at the end. Raises OSError."""
        try:
            return await self._stream.receive(RECEIVE_BYTES)
        except anyio.EndOfStream:
            return b""
        except (anyio.BrokenResourceError, anyio.ClosedResourceError) as error:
            raise ConnectionResetError("the connection broke") from error

    async def send_eof(self) -> None:
        """Do nothing: TLS ends both directions at once."""

    @property
    def has_news(self) -> bool:
        """Whether data or the end has arrived, as far as the TCP connection shows."""
        return self._plain.has_news

    async def aclose(self) -> None:
        """Close the connection. Safe to call twice."""
        with anyio.move_on_after(1, shield=True):
            with contextlib.suppress(OSError, anyio.BrokenResourceError, anyio.ClosedResourceError):
                await self._stream.aclose()


async def connect(name: str, addresses: Sequence[str], port: int, tls: ssl.SSLContext | None = None) -> Outside:
    """Connect to one of these addresses; `name` is for messages and TLS. Raises Unreached."""
    try:
        with anyio.fail_after(CONNECT_S):
            plain = PlainOutside(*await race(addresses, port))
            return plain if tls is None else await secure(plain, name, tls)
    except TimeoutError:
        raise Unreached(f"{name}:{port} did not answer in {CONNECT_S:g} s: try again.", is_late=True) from None
    except OSError as error:
        raise Unreached(f"{name}:{port} cannot be reached: {_explain(error)}.") from None


async def race(addresses: Sequence[str], port: int) -> tuple[socket.socket, str]:
    """Try the addresses in order, each after a short delay; the first to answer wins. Raises OSError."""
    if len(addresses) == 1:
        return await _connect_one(addresses[0], port), addresses[0]
    found: list[tuple[socket.socket, str]] = []
    failures: list[OSError] = []

    async def attempt(address: str, has_failed: anyio.Event, tasks: TaskGroup) -> None:
        try:
            sock = await _connect_one(address, port)
        except OSError as error:
            failures.append(error)
            has_failed.set()
            return
        if found:
            sock.close()
        else:
            found.append((sock, address))
        tasks.cancel_scope.cancel()

    async with anyio.create_task_group() as tasks:
        for address in addresses:
            has_failed = anyio.Event()
            tasks.start_soon(attempt, address, has_failed, tasks)
            with anyio.move_on_after(_NEXT_S):
                await has_failed.wait()
    if found:
        return found[0]
    raise failures[0] if failures else OSError("no address")


async def _connect_one(address: str, port: int) -> socket.socket:
    family = socket.AF_INET if ipaddress.ip_address(address).version == 4 else socket.AF_INET6
    sock = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
    try:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        await asyncio.get_running_loop().sock_connect(sock, (address, port))
    except BaseException:
        sock.close()
        raise
    return sock


async def secure(plain: PlainOutside, name: str, context: ssl.SSLContext) -> Outside:
    """Start TLS on a connection, and close it on failure. Raises Unreached."""
    import ssl

    from anyio.streams.tls import TLSStream

    try:
        secured = await TLSStream.wrap(
            _Carrier(plain), server_side=False, hostname=name, ssl_context=context, standard_compatible=False
        )
    except (ssl.SSLError, anyio.BrokenResourceError, anyio.EndOfStream) as error:
        await plain.aclose()
        unproven = getattr(error, "verify_message", "")
        reason = unproven or getattr(error, "reason", "") or "the connection broke"
        remedy = " The operator can trust its certificate with egress.ca_file." if unproven else ""
        raise Unreached(f"{name} cannot be spoken to over TLS: {reason}.{remedy}") from None
    except BaseException:
        await plain.aclose()
        raise
    return SecureOutside(secured, plain)


class _Carrier(ByteStream):
    """A connection as a byte stream of anyio."""

    def __init__(self, plain: PlainOutside) -> None:
        self._plain = plain

    async def send(self, item: bytes) -> None:
        try:
            await self._plain.send(item)
        except OSError as error:
            raise anyio.BrokenResourceError from error

    async def receive(self, max_bytes: int = 65_536) -> bytes:
        del max_bytes
        try:
            data = await self._plain.receive()
        except OSError as error:
            raise anyio.BrokenResourceError from error
        if not data:
            raise anyio.EndOfStream
        return data

    async def send_eof(self) -> None:
        await self._plain.send_eof()

    async def aclose(self) -> None:
        await self._plain.aclose()


def _explain(error: OSError) -> str:
    # Not the text of the error: event loops put the address into it.
    return os.strerror(error.errno).lower() if error.errno else "the connection failed"
