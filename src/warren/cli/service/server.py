"""The server process: it answers the requests under way before it stops, and reports not ready meanwhile."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import signal
import time
from typing import TYPE_CHECKING

import uvicorn

from warren.gateway.server.websocket_protocol import GuardedWebSocket

if TYPE_CHECKING:
    import socket
    from types import FrameType

    from warren.core.service import Service

_log = logging.getLogger(__name__)


class Server(uvicorn.Server):
    """Serves one application to everybody, and another on a socket of this machine."""

    def __init__(
        self,
        public: uvicorn.Config,
        private: uvicorn.Config,
        local: socket.socket,
        service: Service,
        *,
        drain_s: float,
        takes_signals: bool = True,
    ) -> None:
        super().__init__(public)
        self._takes_signals = takes_signals
        self._private = private
        self._local = local
        self._service = service
        self._drain_s = drain_s
        self._drained_by = math.inf
        self._has_said_so = False
        self._was_interrupted = False

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to listen."""
        await super().startup(sockets)
        config = self._private
        config.load()

        def create_protocol() -> asyncio.Protocol:
            made: asyncio.Protocol = config.http_protocol_class(  # type: ignore[call-arg]  # as uvicorn does
                config=config, server_state=self.server_state, app_state=self.lifespan.state
            )
            return made

        loop = asyncio.get_running_loop()
        self.servers.append(await loop.create_unix_server(create_protocol, sock=self._local))

    def capture_signals(self) -> contextlib.AbstractContextManager[None]:  # type: ignore[override]  # all that is used
        """Take the signals that end a process, unless the command around it takes them."""
        return super().capture_signals() if self._takes_signals else contextlib.nullcontext()

    def handle_exit(self, sig: int, _frame: FrameType | None) -> None:
        """Begin to stop; a second signal stops at once, if one of the two is a Ctrl-C."""
        # WHY: not as uvicorn does it, which raises the signal again as soon as it has stopped listening: that
        # would end us before the service has written down what it still has to write.
        # Two that came together are taken in the order of their numbers, whichever was sent first.
        self._was_interrupted |= sig == signal.SIGINT
        self.force_exit |= self.should_exit and self._was_interrupted
        if not self.should_exit:
            self._drained_by = time.monotonic() + self._drain_s
        self.should_exit = True
        self._service.drain()

    async def on_tick(self, counter: int) -> bool:
        """Say whether to stop now."""
        is_ending = await super().on_tick(counter)
        if self.should_exit:
            # Nothing to wait for: what runs in sandboxes runs on, and clients come back to it.
            for connection in tuple(self.server_state.connections):
                if isinstance(connection, GuardedWebSocket) and connection.is_open:
                    connection.shutdown()
        is_busy = bool(self.server_state.tasks) and time.monotonic() < self._drained_by
        # Not where the signal comes in: that may be in the middle of another line.
        if self.should_exit and not self._has_said_so:
            self._has_said_so = True
            waits = {
                "requests": len(self.server_state.tasks),
                "wait_s": self._drain_s,
                "hint": "Ctrl-C again ends it now",
            }
            _log.info("service.stopping", extra=waits if is_busy else {})
        return is_ending and (self.force_exit or not is_busy)
