"""Deadlines: end an execution in time, by an interrupt first, so that variables survive, and a kill after a grace."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from warren.guest.system.loop import Loop, Timer
    from warren.guest.wire.run_request import RunRequest


class Deadline:
    """The timeouts of one execution, and which of them ended it."""

    __slots__ = ("_idle", "_interrupt", "_kill", "_last", "_loop", "_request", "_timers", "asked", "interrupted")

    def __init__(
        self, loop: Loop, request: RunRequest, interrupt: Callable[[], None], kill: Callable[[], None]
    ) -> None:
        self._loop = loop
        self._request = request
        self._interrupt = interrupt
        self._kill = kill
        self._timers: list[Timer] = []
        self._idle: Timer | None = None
        self._last = 0.0
        self.asked: str | None = None
        """Why the agent ended it, if it did: timeout, idle, output, killed, restarted or broken."""
        self.interrupted = False

    def start(self) -> None:
        """Start the clocks."""
        if self._request.timeout_s is not None:
            self._timers.append(self._loop.call_later(self._request.timeout_s, lambda: self.end("timeout")))
        if self._request.idle_timeout_s is not None:
            self._last = time.monotonic()
            self._idle = self._loop.call_later(self._request.idle_timeout_s, self._check_idle)

    def touch(self) -> None:
        """Restart the idle clock: it wrote something."""
        if self._idle is not None:
            self._last = time.monotonic()

    def end(self, why: str) -> None:
        """Interrupt it now, and kill it if it has not ended after the grace; without a grace, kill it now."""
        if self.asked is None:
            self.asked = why
            if self._request.grace_s == 0:
                self._kill()
                return
            self._timers.append(self._loop.call_later(self._request.grace_s, self._kill))
            self._interrupt()

    def interrupt(self) -> None:
        """Interrupt it on request; the program may go on."""
        self.interrupted = True
        self._interrupt()

    def kill(self, why: str = "killed") -> None:
        """Kill it at once."""
        if self.asked is None:
            self.asked = why
        self._kill()

    def cancel(self) -> None:
        """Stop the clocks."""
        for timer in self._timers:
            timer.cancel()
        if self._idle is not None:
            self._idle.cancel()

    def _check_idle(self) -> None:
        limit = self._request.idle_timeout_s or 0.0
        left = self._last + limit - time.monotonic()
        if left <= 0:
            self.end("idle")
        else:
            self._idle = self._loop.call_later(left, self._check_idle)
