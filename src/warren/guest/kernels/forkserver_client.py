"""The agent's end of the nursery: asks it to fork kernels and scripts, and starts another when it is gone."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections import deque
from typing import TYPE_CHECKING, Any

from warren.guest.kernels.socket import KernelSocket
from warren.guest.system import processes
from warren.guest.wire.frames import Header, ProtocolError

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable

    from warren.guest.system.loop import Loop

    Spawned = Callable[[int | None, str | None], None]
    """Called with the process and perhaps a note about it, or with None and the reason."""

RESTART_PAUSE_S = 1.0
ANSWER_DEADLINE_S = 30.0
_GONE = "the process that forks kernels was killed: try again in a second"


class ForkserverClient:
    """Sends one spawn request at a time: whoever reads it must not find the next one too."""

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
        self._asked: _Request | None = None
        self._socket: KernelSocket | None = None
        self._pid = 0
        self._timer = loop.call_later(0, _nothing)
        if running is not None:
            self._adopt(*running)

    def start(self) -> None:
        """Have it running before anything is asked of it; without room for a process, the first request tries again."""
        with contextlib.suppress(OSError):
            self._adopt(*self._fork())

    def spawn(self, header: dict[str, Any], payload: bytes, fds: list[int], done: Spawned) -> None:
        """Ask for a process with these descriptors, which are closed here; `done` is called later, once."""
        self._requests.append(_Request(header, payload, fds, done))
        self._loop.call_soon(self._next)

    def _next(self) -> None:
        if self._asked is not None or not self._requests:
            return
        request = self._requests.popleft()
        if self._socket is None:
            self._revive()
        if self._socket is None:
            _close(request.fds)
            request.done(None, _GONE)
            self._loop.call_soon(self._next)
            return
        self._asked = request
        # User code may have stopped it; what is stopped again and again is ended when it is late.
        processes.send(self._pid, signal.SIGCONT)
        self._timer = self._loop.call_later(ANSWER_DEADLINE_S, self._give_up)
        try:
            self._socket.send({"t": "spawn", **request.header}, request.payload, request.fds)
        except ValueError:
            self._answer(None, "the environment is too large")

    def _answer(self, pid: int | None, note: str | None) -> None:
        self._timer.cancel()
        request, self._asked = self._asked, None
        if request is not None:
            request.done(pid, note)
        self._loop.call_soon(self._next)

    def _adopt(self, sock: socket.socket, pid: int) -> None:
        link = self._socket = KernelSocket(self._loop, sock)
        self._pid = self._loop.expected = pid
        link.on_frame = self._answered
        # The end of file, not the end of a process: who answers a request was the nursery, and a successor is now.
        link.on_broken = lambda _why: self._lost(link)

    def _answered(self, header: Header, _payload: bytes) -> None:
        pid, nursery, note, why = (header.get(name) for name in ("pid", "nursery", "note", "why"))
        if self._asked is None:
            raise ProtocolError("the nursery answered what nobody asked")
        if header["t"] == "failed" and isinstance(why, str):
            self._answer(None, why[:1024])
        elif header["t"] == "spawned" and isinstance(pid, int) and isinstance(nursery, int) and min(pid, nursery) > 1:
            self._pid = self._loop.expected = nursery
            self._answer(pid, note[:1024] if isinstance(note, str) else None)
        else:
            raise ProtocolError("the nursery named no process")

    def _lost(self, link: KernelSocket) -> None:
        link.close()
        if self._socket is link:
            self._socket = None
            self._answer(None, _GONE)

    def _give_up(self) -> None:
        """End a nursery that does not answer: user code may have stopped it."""
        if processes.is_child(self._pid):
            processes.send(self._pid, signal.SIGKILL)

    def _revive(self) -> None:
        # Whoever kills it in a loop must not make the agent fork in a loop.
        now = time.monotonic()
        if now - self._started >= RESTART_PAUSE_S:
            self._started = now
            self.start()


class _Request:
    __slots__ = ("done", "fds", "header", "payload")

    def __init__(self, header: dict[str, Any], payload: bytes, fds: list[int], done: Spawned) -> None:
        self.header = header
        self.payload = payload
        self.fds = fds
        self.done = done


def _nothing() -> None:
    """Stand in for a deadline while nothing was asked."""


def _close(fds: list[int]) -> None:
    for fd in fds:
        os.close(fd)
