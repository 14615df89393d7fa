"""Resolver of egress: names to addresses, once for each connection.

1. A lookup occupies a thread until it ends, also after its caller has left. Owners share the threads fairly.
2. Resolver options of the environment are ignored.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import socket
from collections.abc import Awaitable, Callable, Hashable
from typing import TYPE_CHECKING

import anyio
from anyio import to_thread

from warren.core.concurrency.fair_queue import FairQueue
from warren.core.egress.dialer import Unreached
from warren.domain.errors import Overloaded

if TYPE_CHECKING:
    from warren.core.telemetry.counters import Counters

Resolve = Callable[[Hashable, str], Awaitable[tuple[str, ...]]]
Find = Callable[[str], tuple[str, ...]]

LOOK_UP_S = 10.0
MAX_ADDRESSES = 16
_PROBE_S = 1.0
_PROBED_S = 30.0
_UNUSED_NAME = "warren.invalid"
"""A reserved name: every working resolver answers at once that it does not exist."""
_THREADS = 32
_WAITING = 1024


class Crowded(Unreached):
    """Too many lookups are waiting; the name may exist."""


def look_up(name: str) -> tuple[str, ...]:
    """Resolve a name; blocks. Raises Unreached."""
    try:
        found = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        raise Unreached(f"{name} cannot be found: check its spelling.") from None
    addresses = (str(each[4][0]) for each in found)
    return tuple(dict.fromkeys(each for each in addresses if "%" not in each))[:MAX_ADDRESSES]


class SystemResolver:
    """Resolver of this host, with a bounded number of threads.

    `patience_s` is for one lookup and excludes the wait for a thread: an owner who takes all threads must not make the
    names of others unresolvable.
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
        # Never reached: the queue admits fewer.
        self._threads: anyio.CapacityLimiter | None = None
        self._probing: anyio.Lock | None = None
        self._probed = (-_PROBED_S, True)
        """When the resolver was last probed, and whether it answered."""

    async def __call__(self, owner: Hashable, name: str) -> tuple[str, ...]:
        """Resolve a name. Raises Unreached, and Crowded when the queue is full."""
        self._threads = self._threads or anyio.CapacityLimiter(_THREADS * 2)
        if not self._queue.try_enter(owner):
            await self._wait(owner, name)
        loop = asyncio.get_running_loop()

        def work() -> tuple[str, ...]:
            try:
                return self._find(name)
            finally:
                # Released by the thread: the caller may have left long before.
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
        """Wait for a thread, unless the resolver does not answer at all. Raises Unreached."""
        if self._patience_s < LOOK_UP_S and not await self._is_answered():
            raise Unreached(f"{name} cannot be resolved: the resolver does not answer.", is_late=True)
        try:
            await self._queue.enter(owner)
        except Overloaded as error:
            raise Crowded(f"{name} cannot be looked up now: {error}", is_late=True) from None

    async def _is_answered(self) -> bool:
        """Whether the resolver answers. The probe is a fixed name, which no sandbox can delay."""
        self._probing = self._probing or anyio.Lock()
        async with self._probing:
            at, is_answered = self._probed
            if anyio.current_time() - at >= _PROBED_S:
                is_answered = False
                with anyio.move_on_after(_PROBE_S):
                    with contextlib.suppress(Unreached):
                        await to_thread.run_sync(
                            self._find, _UNUSED_NAME, abandon_on_cancel=True, limiter=self._threads
                        )
                    is_answered = True
                self._probed = (anyio.current_time(), is_answered)
            return is_answered
