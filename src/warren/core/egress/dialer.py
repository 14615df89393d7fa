"""Connections to the outside: names are looked up here and nowhere else, and what was checked is what is connected to.

1. Between looking a name up and connecting, nothing is looked up again: whoever answers for a name cannot answer twice.
2. Looking up takes a thread until it ends, whatever became of who asked: threads are shared among owners.
3. No proxy, resolver option or certificate of the environment is used but what the operator named.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import ipaddress
import os
import socket
from typing import TYPE_CHECKING, Protocol

import anyio
from anyio import to_thread
from anyio.abc import ByteStream

from warren.core.concurrency.fair_queue import FairQueue
from warren.domain.errors import Overloaded

if TYPE_CHECKING:
    import ssl
    from collections.abc import Awaitable, Callable, Hashable, Sequence

    from anyio.abc import TaskGroup
    from anyio.streams.tls import TLSStream

    from warren.core.telemetry.counters import Counters

    Resolve = Callable[[Hashable, str], Awaitable[tuple[str, ...]]]
    Find = Callable[[str], tuple[str, ...]]

RECEIVE_BYTES = 256 << 10
LOOK_UP_S = 10.0
_PROBE_S = 1.0
_PROBED_S = 30.0
_NOBODYS = "warren.invalid"
"""A name of which whoever answers at all says at once that there is none."""
CONNECT_S = 15.0
"""For all addresses of a name together."""
MAX_ADDRESSES = 16
_NEXT_S = 0.3
"""After which the next address is tried too, while the one before does not answer."""
_THREADS = 32
_WAITING = 1024
_FAIR_SHARE = 1 << 20
"""Bytes after which a busy connection lets the other tasks run: `sock_recv` does not yield while data is there."""


class Unreached(Exception):
    """There is no connection. The sentence is for the program, and names no address of this network."""

    def __init__(self, why: str, *, is_late: bool = False) -> None:
        super().__init__(why)
        self.is_late = is_late


class Crowded(Unreached):
    """So much is looked up that nothing can be said of one name more."""


class Outside(Protocol):
    """A connection to somebody outside."""

    address: str

    async def send(self, data: bytes) -> None:
        """Send all of it. Raises OSError."""

    async def receive(self) -> bytes:
        """Return the next bytes, or b"" when no more follow. Raises OSError."""

    async def send_eof(self) -> None:
        """Say that no more follows from us, where the connection can say so."""

    @property
    def has_news(self) -> bool:
        """Whether something arrived, or it ended: then it cannot take another request."""

    async def aclose(self) -> None:
        """Close it. Safe to call twice."""


class PlainOutside:
    """A TCP connection. One task may receive while another sends."""

    def __init__(self, sock: socket.socket, address: str) -> None:
        self.address = address
        self._socket = sock
        self._early = b""
        self._since_yield = 0

    def put_back(self, data: bytes) -> None:
        """Have `receive` return these first."""
        self._early = data

    async def send(self, data: bytes) -> None:
        """Send all of it. Raises OSError."""
        await asyncio.get_running_loop().sock_sendall(self._socket, data)

    async def receive(self) -> bytes:
        """Return the next bytes, or b"" when no more follow. Raises OSError."""
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
        """Say that no more follows from us."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)

    @property
    def has_news(self) -> bool:
        """Whether something arrived, or it ended."""
        try:
            self._socket.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return False
        except OSError:
            return True
        return True

    async def aclose(self) -> None:
        """Close it. Safe to call twice; nobody may be using it."""
        self._socket.close()


class SecureOutside:
    """TLS over a connection, the server proven to be whom we asked for."""

    def __init__(self, stream: TLSStream, plain: PlainOutside) -> None:
        self.address = plain.address
        self._stream = stream
        self._plain = plain

    async def send(self, data: bytes) -> None:
        """Send all of it. Raises OSError."""
        try:
            await self._stream.send(data)
        except (anyio.BrokenResourceError, anyio.ClosedResourceError) as error:
            raise ConnectionResetError("the connection broke") from error

    async def receive(self) -> bytes:
        """Return the next bytes, or b"" when no more follow. Raises OSError."""
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
        """Whether something arrived, or it ended, as far as can be seen from outside."""
        return self._plain.has_news

    async def aclose(self) -> None:
        """Close it. Safe to call twice."""
        with anyio.move_on_after(1, shield=True):
            with contextlib.suppress(OSError, anyio.BrokenResourceError, anyio.ClosedResourceError):
                await self._stream.aclose()


def look_up(name: str) -> tuple[str, ...]:
    """Return the addresses of a name; waits for whoever answers for names. Raises Unreached."""
    try:
        found = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        raise Unreached(f"{name} cannot be found: check its spelling.") from None
    addresses = (str(each[4][0]) for each in found)
    return tuple(dict.fromkeys(each for each in addresses if "%" not in each))[:MAX_ADDRESSES]


class SystemResolver:
    """Looks names up as this host does, in threads of which there are a few.

    `patience_s` is for one name. To wait for a thread is no part of it: whoever takes them all would make others' names
    unknown.
    """

    def __init__(self, observer: Counters, patience_s: float = LOOK_UP_S, find: Find = look_up) -> None:
        self._patience_s = patience_s
        self._find = find
        self._queue = FairQueue(
            "names that are looked up",
            slots=_THREADS,
            waiting=_WAITING,
            wait_s=LOOK_UP_S,
            on_refused=observer.rejected,
            shared=True,
        )
        # Never what anybody waits for: the gate lets in fewer.
        self._threads: anyio.CapacityLimiter | None = None
        self._probing: anyio.Lock | None = None
        self._probed = (-_PROBED_S, True)
        """When somebody was last asked whether names are answered at all, and whether they are."""

    async def __call__(self, owner: Hashable, name: str) -> tuple[str, ...]:
        """Return the addresses of a name. Raises Unreached, and Crowded where that says nothing of the name."""
        self._threads = self._threads or anyio.CapacityLimiter(_THREADS * 2)
        if not self._queue.try_enter(owner):
            await self._wait(owner, name)
        loop = asyncio.get_running_loop()

        def work() -> tuple[str, ...]:
            try:
                return self._find(name)
            finally:
                # Here, and not by who asked: it may have left long before the thread could.
                with contextlib.suppress(RuntimeError):
                    loop.call_soon_threadsafe(functools.partial(self._queue.leave, owner))

        try:
            with anyio.fail_after(self._patience_s):
                return await to_thread.run_sync(work, abandon_on_cancel=True, limiter=self._threads)
        except TimeoutError:
            raise Unreached(
                f"{name} could not be looked up in {self._patience_s:g} s: try again.", is_late=True
            ) from None

    async def _wait(self, owner: Hashable, name: str) -> None:
        """Wait for a thread, unless those who have them wait for nobody. Raises Unreached."""
        if self._patience_s < LOOK_UP_S and not await self._is_answered():
            raise Unreached(f"{name} cannot be looked up: nobody answers.", is_late=True)
        try:
            await self._queue.enter(owner)
        except Overloaded as error:
            raise Crowded(f"{name} cannot be looked up now: {error}", is_late=True) from None

    async def _is_answered(self) -> bool:
        """Whether anybody answers for names here. It does not matter what: no sandbox can keep this answer away."""
        self._probing = self._probing or anyio.Lock()
        async with self._probing:
            at, is_answered = self._probed
            if anyio.current_time() - at >= _PROBED_S:
                is_answered = False
                with anyio.move_on_after(_PROBE_S):
                    with contextlib.suppress(Unreached):
                        await to_thread.run_sync(self._find, _NOBODYS, abandon_on_cancel=True, limiter=self._threads)
                    is_answered = True
                self._probed = (anyio.current_time(), is_answered)
            return is_answered


async def connect(name: str, addresses: Sequence[str], port: int, tls: ssl.SSLContext | None = None) -> Outside:
    """Connect to one of these addresses, and to nothing else; `name` is for words and for TLS. Raises Unreached."""
    try:
        with anyio.fail_after(CONNECT_S):
            plain = PlainOutside(*await race(addresses, port))
            return plain if tls is None else await secure(plain, name, tls)
    except TimeoutError:
        raise Unreached(f"{name}:{port} did not answer in {CONNECT_S:g} s: try again.", is_late=True) from None
    except OSError as error:
        raise Unreached(f"{name}:{port} cannot be reached: {_explain(error)}.") from None


async def race(addresses: Sequence[str], port: int) -> tuple[socket.socket, str]:
    """Try one after the other, without waiting long for any; the first that answers is it. Raises OSError."""
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
    """Speak TLS over a connection, which is closed if that fails. Raises Unreached."""
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
        remedy = " The operator can have its certificate believed with egress.ca_file." if unproven else ""
        raise Unreached(f"{name} cannot be spoken to over TLS: {reason}.{remedy}") from None
    except BaseException:
        await plain.aclose()
        raise
    return SecureOutside(secured, plain)


class _Carrier(ByteStream):
    """A connection as anyio's TLS wants it."""

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
    # Not the error's own words: an event loop puts the address into them.
    return os.strerror(error.errno).lower() if error.errno else "the connection failed"
