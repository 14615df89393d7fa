"""The event loop of the agent: descriptors, timers and children, in one thread."""

from __future__ import annotations

import heapq
import itertools
import os
import select
import signal
import time
from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import resource
    from collections.abc import Callable

READ = select.EPOLLIN
WRITE = select.EPOLLOUT
_TROUBLE = select.EPOLLERR | select.EPOLLHUP
MAX_STRAYS = 256
"""Exits that are remembered for a late `on_exit`."""


class Timer:
    """A callback that runs once, unless cancelled."""

    __slots__ = ("callback", "cancelled")

    def __init__(self, callback: Callable[[], None]) -> None:
        self.callback = callback
        self.cancelled = False

    def cancel(self) -> None:
        """Cancel it; harmless after it has run."""
        self.cancelled = True
        # Objects of the callback must not live until a long timeout would have fired.
        self.callback = nothing


class Loop:
    """Watches descriptors, keeps timers and reaps every child that process 1 inherits."""

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._watches: dict[int, tuple[int, Callable[[int], None]]] = {}
        self._new: set[int] = set()
        """Descriptors that were not watched when this round began: events of the round with their number are stale."""
        self._timers: list[tuple[float, int, Timer]] = []
        self._timers_bound = 256
        self._order = itertools.count()
        self._soon: deque[Callable[[], None]] = deque()
        self._children: dict[int, Callable[[int, resource.struct_rusage], None]] = {}
        self._strays: dict[int, tuple[float, int, resource.struct_rusage]] = {}
        self.expected = 0
        """The child whose `on_exit` will follow: its exit is remembered however many others end meanwhile."""
        self._wake_read, self._wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.signal(signal.SIGCHLD, _ignore)
        # A signal interrupts epoll only through this descriptor: Python retries interrupted calls itself.
        signal.set_wakeup_fd(self._wake_write, warn_on_full_buffer=False)
        self._epoll.register(self._wake_read, READ)
        self._child_died = True

    def watch(self, fd: int, events: int, callback: Callable[[int], None]) -> None:
        """Call `callback(events)` whenever `fd` is ready; replaces an earlier watch of the same descriptor."""
        before = self._watches.get(fd)
        if before is None:
            self._epoll.register(fd, events)
            self._new.add(fd)
        elif before[0] != events:
            self._epoll.modify(fd, events)
        self._watches[fd] = (events, callback)

    def unwatch(self, fd: int) -> None:
        """Stop watching `fd`; harmless when it was not watched. Call it before closing the descriptor."""
        if self._watches.pop(fd, None) is not None:
            self._epoll.unregister(fd)

    def call_soon(self, callback: Callable[[], None]) -> None:
        """Call it at the end of this round, after the descriptors that are ready now."""
        self._soon.append(callback)

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> Timer:
        """Call it once after `delay_s` seconds."""
        if len(self._timers) > self._timers_bound:
            self._timers = [entry for entry in self._timers if not entry[2].cancelled]
            heapq.heapify(self._timers)
            self._timers_bound = 256 + 2 * len(self._timers)
        timer = Timer(callback)
        heapq.heappush(self._timers, (time.monotonic() + delay_s, next(self._order), timer))
        return timer

    def on_exit(
        self, pid: int, callback: Callable[[int, resource.struct_rusage], None], since: float | None = None
    ) -> None:
        """Call `callback(wait_status, rusage)` once our child `pid` has been reaped.

        For a child that another process forked for us, `since` is the monotonic time of the request: it may have ended,
        and been reaped, before its pid was known.
        """
        stray = self._strays.pop(pid, None)
        if stray is not None and since is not None and stray[0] >= since:
            _, status, usage = stray
            self.call_soon(lambda: callback(status, usage))
            return
        self._children[pid] = callback
        self._child_died = True

    def is_child_known(self, pid: int) -> bool:
        """Return whether `on_exit` is set for child `pid`."""
        return pid in self._children

    def forget_child(self, pid: int) -> None:
        """Reap `pid` silently when it ends."""
        self._children.pop(pid, None)

    def run_once(self) -> None:
        """Wait for the next event and handle all that are ready."""
        if self._child_died:
            self._reap()
        found = self._epoll.poll(self._timeout())
        self._new.clear()
        if (self._wake_read, READ) in found:
            # Before the rest: a request that came after a death must not go to the dead process.
            os.read(self._wake_read, 4096)
            self._reap()
        for fd, ready in found:
            # An earlier callback of this round may have closed this descriptor, and another have reused its number.
            watch = self._watches.get(fd)
            if watch is not None and fd not in self._new:
                # An error or a hang-up concerns reader and writer: their next call returns it.
                watch[1]((ready | READ | WRITE if ready & _TROUBLE else ready) & watch[0])
        for _ in range(len(self._soon)):
            # Removed one by one: if one raises, the others run in the next round.
            self._soon.popleft()()
        self._fire_timers()

    def _timeout(self) -> float | None:
        if self._soon or self._child_died:
            return 0.0
        if not self._timers:
            return None
        return max(0.0, self._timers[0][0] - time.monotonic())

    def _fire_timers(self) -> None:
        now = time.monotonic()
        while self._timers and self._timers[0][0] <= now:
            timer = heapq.heappop(self._timers)[2]
            if not timer.cancelled:
                timer.callback()

    def _reap(self) -> None:
        self._child_died = False
        while True:
            try:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            callback = self._children.pop(pid, None)
            if callback is not None:
                callback(status, usage)
            else:
                self._strays[pid] = (time.monotonic(), status, usage)
                if len(self._strays) > MAX_STRAYS:
                    del self._strays[next(stray for stray in self._strays if stray != self.expected)]


def _ignore(_signal: int, _frame: object) -> None:
    """Do nothing: the wake-up descriptor has already been written to."""


def nothing() -> None:
    """Stand in for a callback where there is nothing to do."""
