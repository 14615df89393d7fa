"""Connections to servers inside sandboxes: authorization, limits and audit."""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

import anyio

from warren.core.concurrency.fair_queue import OwnerLimiter
from warren.domain.errors import Conflict, Error, NotFound, Unreachable

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from warren.core.agent.client import ByteStream
    from warren.core.audit.log import Audit
    from warren.core.sandboxes.live import LiveSandbox
    from warren.core.sandboxes.sandboxes import Sandboxes
    from warren.core.telemetry.counters import Counters
    from warren.domain.records import Caller, Owner

WINDOW = 256 << 10
"""Bytes of a server that a slow client has not read yet: the memory that a connection costs the service."""
OWN = 64
"""Connections to one sandbox at once."""
EVERYBODY = 1024
WAITING = 256
WAIT_S = 10.0
_TICK_S = 5.0
_TOUCH_S = 1.0
_HOSTS = ("127.0.0.1", "::1")
"""Where a server on `localhost` may listen."""
WINDOW_S = 60.0
_MOST = 4096
"""Open windows of principals and ports; above that, all are written."""
_STATUSES = 16


class PortConnection:
    """One connection to a server inside. Traffic counts as use of the sandbox; an idle connection does not.

    Until `answered`, the sandbox is in use: a server may take its time.
    """

    def __init__(self, stream: ByteStream, live: LiveSandbox, window: Window) -> None:
        self._stream = stream
        self._live = live
        self._window = window
        self._touched = 0.0
        self._hold = contextlib.ExitStack()
        self._hold.enter_context(live.busy())
        self.status = "none"
        """Outcome, for the audit record."""

    async def send(self, data: bytes) -> None:
        """Send all of `data`; once the server takes no more, it is dropped, and `receive` raises the reason."""
        self._window.bytes_in += len(data)
        self._touch()
        await self._stream.send(data)

    async def receive(self) -> bytes:
        """Return the next bytes, or b"" at the end. Raises Unreachable when it broke, and SandboxLost."""
        try:
            data = await self._stream.receive()
        except Conflict as error:
            raise Unreachable("the server inside broke off the connection") from error
        self._window.bytes_out += len(data)
        self._touch()
        return data

    def answered(self, status: str) -> None:
        """Note the server's status; from now on only traffic counts as use."""
        self.status = status
        self._hold.close()

    async def aclose(self) -> None:
        """Close the connection."""
        self._hold.close()
        await self._stream.aclose()

    def _touch(self) -> None:
        now = time.monotonic()
        if now - self._touched >= _TOUCH_S:
            self._touched = now
            self._live.touch()


class Ports:
    """The ports of all sandboxes. `run` is a task of the service."""

    def __init__(self, sandboxes: Sandboxes, audit: Audit, observer: Counters) -> None:
        self._sandboxes = sandboxes
        self._audit = audit
        self._traffic = PortTraffic(audit)
        self.connections = OwnerLimiter(
            observer,
            "connections to ports",
            what_own="connections to one sandbox",
            own=OWN,
            everybody=EVERYBODY,
            waiting=WAITING,
            wait_s=WAIT_S,
        )

    async def run(self) -> None:
        """Audit traffic until the service stops, and the rest at its end."""
        try:
            while True:
                await anyio.sleep(_TICK_S)
                self._traffic.collect()
        finally:
            self._traffic.collect(now=True)

    @contextlib.asynccontextmanager
    async def connect(self, caller: Caller, sandbox_id: str, port: int, method: str) -> AsyncIterator[PortConnection]:
        """Connect to a port of a sandbox, which is resumed if it is stopped. `method` is for the audit record.

        Raises NotFound, QuotaExceeded, Overloaded, and Unreachable when nothing listens there.
        """
        self._audit.check_writable()
        window, is_first = self._traffic.begin(caller, sandbox_id, port)
        outcome, status = "abandoned", "abandoned"
        try:
            async with (
                self.connections.one(caller.principal.owner, sandbox_id),
                # WHY: a caller that is cancelled during the audit write must not leave the sandbox in use for ever.
                contextlib.AsyncExitStack() as held,
            ):
                try:
                    connection = await self._open(caller, sandbox_id, port, window)
                    held.push_async_callback(connection.aclose)
                    outcome = "ok"
                except Error as error:
                    outcome = status = error.code
                    raise
                finally:
                    if is_first:
                        self._audit.note(
                            caller, "port.connect", outcome=outcome, sandbox_id=sandbox_id, port=port, method=method
                        )
                        await self._audit.settle()
                try:
                    yield connection
                finally:
                    status = connection.status
        finally:
            window.end(status)

    async def _open(self, caller: Caller, sandbox_id: str, port: int, window: Window) -> PortConnection:
        async with self._sandboxes.use(caller, sandbox_id) as live:
            for host in _HOSTS:
                with contextlib.suppress(NotFound, Conflict):
                    return PortConnection(await live.agent.connect_port(port, host, window=WINDOW), live, window)
        raise Unreachable(f"nothing listens on port {port} of {sandbox_id}: start a server there")


class _Key(NamedTuple):
    owner: Owner
    key_id: str
    link_id: str
    sandbox_id: str
    port: int


class Window:
    """Traffic between a principal and a port since the last entry."""

    __slots__ = ("bytes_in", "bytes_out", "caller", "ends", "open", "requests", "statuses")

    def __init__(self, caller: Caller, ends: float) -> None:
        self.caller = caller
        self.ends = ends
        self.open = 0
        """Connections that may still add to it."""
        self.requests = 0
        self.bytes_in = 0
        self.bytes_out = 0
        self.statuses: Counter[str] = Counter()

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to write."""
        return not (self.requests or self.bytes_in or self.bytes_out)

    def end(self, status: str) -> None:
        """Count a request that ended: with the status of the server inside, or the code of an error."""
        self.open -= 1
        self.requests += 1
        known = status in self.statuses or len(self.statuses) < _STATUSES
        self.statuses[status if known else "other"] += 1


class PortTraffic:
    """Audit entries of port traffic. `Ports.run` calls `collect` periodically, and `collect(now=True)` at the end.

    A page takes hundreds of requests, so they share entries. The first connection of a principal to a port is
    `port.connect`, written before its response; every minute with traffic then has one `port.traffic`.
    """

    def __init__(self, audit: Audit, clock: Callable[[], float] = time.monotonic) -> None:
        self._audit = audit
        self._clock = clock
        self._windows: dict[_Key, Window] = {}

    def begin(self, caller: Caller, sandbox_id: str, port: int) -> tuple[Window, bool]:
        """Count a connection; return whether it is the first of a while, and so gets its own entry."""
        who = caller.principal
        key = _Key(who.owner, who.key_id or "", caller.link_id, sandbox_id, port)
        window = self._windows.get(key)
        is_first = window is None
        if window is None:
            if len(self._windows) >= _MOST:
                self.collect(now=True)
            window = self._windows[key] = Window(caller, self._clock() + WINDOW_S)
        window.open += 1
        return window, is_first

    def collect(self, *, now: bool = False) -> None:
        """Write the windows whose minute is over, or all, and drop those without open connections."""
        at = self._clock()
        for key, window in list(self._windows.items()):
            if not now and at < window.ends:
                continue
            if not window.is_empty:
                self._write(key, window)
            if not window.open:
                del self._windows[key]
            window.ends = at + WINDOW_S

    def _write(self, key: _Key, window: Window) -> None:
        self._audit.note(
            window.caller,
            "port.traffic",
            sandbox_id=key.sandbox_id,
            port=key.port,
            requests=window.requests,
            statuses=dict(window.statuses),
            bytes_in=window.bytes_in,
            bytes_out=window.bytes_out,
        )
        window.requests = window.bytes_in = window.bytes_out = 0
        window.statuses.clear()
