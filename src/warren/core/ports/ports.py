"""Connections to servers inside sandboxes: authorization, limits and audit."""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING

import anyio

from warren.core.concurrency.owner_limit import OwnerLimiter
from warren.core.ports.traffic import PortTraffic
from warren.domain.errors import Conflict, Error, NotFound, Unreachable

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from warren.core.agent.client import ByteStream
    from warren.core.audit.log import Audit
    from warren.core.ports.traffic import Window
    from warren.core.sandboxes.live import LiveSandbox
    from warren.core.sandboxes.sandboxes import Sandboxes
    from warren.core.telemetry.counters import Counters
    from warren.domain.records import Caller

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
