"""Forkserver client: the agent requests kernels and scripts through it; it restarts a forkserver that is gone."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections import deque
from typing import TYPE_CHECKING, Any, NamedTuple

from warren.guest.kernels.socket import KernelSocket
from warren.guest.system import processes
from warren.guest.system.loop import nothing
from warren.guest.wire.frames import Header, ProtocolError

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable

    from warren.guest.system.loop import Loop

    Spawned = Callable[[int | None, str | None], None]
    """Called with the pid and perhaps a note about it, or with None and the reason."""

RESTART_PAUSE_S = 1.0
ANSWER_DEADLINE_S = 30.0
_GONE = "the process that forks kernels was killed: try again in a second"


class ForkserverClient:
    """Sends one spawn request at a time: the process that reads it must not read the next one too."""

    def __init__(
        self,
        loop: Loop,
        start: Callable[[], tuple[socket.socket, int]],
        running: tuple[socket.socket, int] | None = None,
    ) -> None:
        self._loop = loop
        self._fork = start
        self._started = -RESTART_PAUSE_S
        self._requests: deque[_Request] = deque()
        self._pending: _Request | None = None
        self._socket: KernelSocket | None = None
        self._pid = 0
        self._timer = loop.call_later(0, nothing)
        """The deadline of the pending request."""
        if running is not None:
            self._adopt(*running)

    def start(self) -> None:
        """Start it before the first request; where no process can be made, the first request tries again."""
        with contextlib.suppress(OSError):
            self._adopt(*self._fork())

    def spawn(self, header: dict[str, Any], payload: bytes, fds: list[int], done: Spawned) -> None:
        """Request a process with these descriptors, which are closed here; `done` is called later, once."""
        self._requests.append(_Request(header, payload, fds, done))
        self._loop.call_soon(self._next)

    def _next(self) -> None:
        if self._pending is not None or not self._requests:
            return
        request = self._requests.popleft()
        if self._socket is None:
            self._restart()
        if self._socket is None:
            for fd in request.fds:
                os.close(fd)
            request.done(None, _GONE)
            self._loop.call_soon(self._next)
            return
        self._pending = request
        # User code may have stopped it; if it stops it again, the deadline ends it.
        processes.send(self._pid, signal.SIGCONT)
        self._timer = self._loop.call_later(ANSWER_DEADLINE_S, self._give_up)
        try:
            self._socket.send({"t": "spawn", **request.header}, request.payload, request.fds)
        except ValueError:
            self._answer(None, "the environment is too large")

    def _answer(self, pid: int | None, note: str | None) -> None:
        self._timer.cancel()
        request, self._pending = self._pending, None
        if request is not None:
            request.done(pid, note)
        self._loop.call_soon(self._next)

    def _adopt(self, sock: socket.socket, pid: int) -> None:
        link = self._socket = KernelSocket(self._loop, sock)
        self._pid = self._loop.expected = pid
        link.on_frame = self._answered
        # End of file, not process exit: after each request another process, its successor, is the forkserver.
        link.on_broken = lambda _why: self._lost(link)

    def _answered(self, header: Header, _payload: bytes) -> None:
        pid, server, note, why = (header.get(name) for name in ("pid", "nursery", "note", "why"))
        if self._pending is None:
            raise ProtocolError("the forkserver answered without a request")
        if header["t"] == "failed" and isinstance(why, str):
            self._answer(None, why[:1024])
        elif header["t"] == "spawned" and isinstance(pid, int) and isinstance(server, int) and min(pid, server) > 1:
            self._pid = self._loop.expected = server
            self._answer(pid, note[:1024] if isinstance(note, str) else None)
        else:
            raise ProtocolError("the forkserver named no process")

    def _lost(self, link: KernelSocket) -> None:
        link.close()
        if self._socket is link:
            self._socket = None
            self._answer(None, _GONE)

    def _give_up(self) -> None:
        """Kill a forkserver that does not answer: user code may have stopped it."""
        if processes.is_child(self._pid):
            processes.send(self._pid, signal.SIGKILL)

    def _restart(self) -> None:
        # User code that kills it in a loop must not make the agent fork in a loop.
        now = time.monotonic()
        if now - self._started >= RESTART_PAUSE_S:
            self._started = now
            self.start()


class _Request(NamedTuple):
    header: dict[str, Any]
    payload: bytes
    fds: list[int]
    done: Spawned
