"""Fair queue: a bounded number of places, and a bounded line in front of them that serves owners in turn.

An owner limiter is two of them: the places of each owner, and those of all. It bounds transfers, each of which holds a
window of memory while a slow client reads it.
"""

from __future__ import annotations

import contextlib
from collections import OrderedDict, deque
from typing import TYPE_CHECKING

import anyio

from warren.domain.errors import Overloaded, QuotaExceeded

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Hashable

    from warren.core.telemetry.counters import Counters
    from warren.domain.records import Owner

_WEIGHT = 0.1
"""Weight of the newest stay in the moving estimate of how long one takes."""
_LONGEST_ADVICE_S = 60.0
SHARE = 2
OWN = 32
"""Transfers of one owner at once; a slow reader delays only its own."""
EVERYBODY = 128
"""Of all owners. At about 2 MiB each, this bounds the memory of all transfers."""
WAITING = 512
WAIT_S = 30.0


class _Waiter:
    __slots__ = ("entered", "event", "turned_away")

    def __init__(self) -> None:
        self.event = anyio.Event()
        self.entered = False
        self.turned_away = False


class FairQueue:
    """Lets `slots` in at once, 0 being no limit; up to `waiting` more wait, each for up to `wait_s`.

    1. A leaver lets in every waiter that may enter: none that may waits beside a free place.
    2. Where places are `shared`, an owner that holds as many as `SHARE` times the free ones gets no more. However long
       a few owners keep their places, some are left for the next: of 256 places one owner gets 170, four get 56 each,
       and 28 stay free.
    """

    def __init__(
        self,
        what: str,
        *,
        slots: int,
        waiting: int,
        wait_s: float,
        on_refused: Callable[[str], None] | None = None,
        shared: bool = False,
    ) -> None:
        self.what = what
        self.inside = 0
        self.waiting = 0
        self._slots = slots
        self._most_waiting = waiting
        self._wait_s = wait_s
        self._on_refused = on_refused
        self._lines: OrderedDict[Hashable, deque[_Waiter]] = OrderedDict()
        self._stay_s = 1.0
        self._held: dict[Hashable, int] | None = {} if shared and slots else None
        """Places of each owner, where they are shared."""

    def try_enter(self, owner: Hashable) -> bool:
        """Enter if there is room for this owner, at once."""
        if not self._has_room(owner):
            return False
        self._take(owner)
        return True

    async def enter(self, owner: Hashable) -> None:
        """Enter, waiting in line for a place. Raises Overloaded when the line is full or the wait too long."""
        if self.try_enter(owner):
            return
        waiter = self._join(owner)
        try:
            with anyio.move_on_after(self._wait_s):
                await waiter.event.wait()
        except BaseException:
            if waiter.entered:
                self.leave(owner)
            raise
        finally:
            if not waiter.entered and not waiter.turned_away:
                self._take_out(owner, waiter)
        if not waiter.entered:
            if waiter.turned_away:
                raise self._refuse(owner, "queue_full", "gave way to others")
            raise self._refuse(owner, "waited_too_long", f"waited {self._wait_s:g} s")

    def leave(self, owner: Hashable, stay_s: float | None = None) -> None:
        """Free the place, and let in the waiters that may have it. `stay_s` is how long it was held."""
        if stay_s is not None:
            self._stay_s += _WEIGHT * (stay_s - self._stay_s)
        self.inside -= 1
        if self._held is not None:
            self._held[owner] -= 1
            if not self._held[owner]:
                del self._held[owner]
        while (following := next(filter(self._has_room, self._lines), None)) is not None:
            self._let_in(following)

    def _let_in(self, owner: Hashable) -> None:
        line = self._lines[owner]
        waiter = line.popleft()
        self.waiting -= 1
        if line:
            self._lines.move_to_end(owner)
        else:
            del self._lines[owner]
        self._take(owner)
        waiter.entered = True
        waiter.event.set()

    def _has_room(self, owner: Hashable) -> bool:
        if not self._slots:
            return True
        free = self._slots - self.inside
        return free > 0 and (self._held is None or self._held.get(owner, 0) < SHARE * free)

    def _take(self, owner: Hashable) -> None:
        self.inside += 1
        if self._held is not None:
            self._held[owner] = self._held.get(owner, 0) + 1

    def advice_s(self, ahead: int, slots: int) -> float:
        """Estimate when one of `slots` is free for a caller with that many ahead."""
        return min(max(self._stay_s * (ahead + 1) / max(slots, 1), 0.1), _LONGEST_ADVICE_S)

    def _join(self, owner: Hashable) -> _Waiter:
        if self.waiting >= self._most_waiting:
            self._make_room_for(owner)
        waiter = _Waiter()
        self._lines.setdefault(owner, deque()).append(waiter)
        self.waiting += 1
        return waiter

    def _make_room_for(self, owner: Hashable) -> None:
        """Turn away the last waiter of the longest line, so that one owner alone cannot keep the others out."""
        longest = max(self._lines, key=lambda each: len(self._lines[each]), default=None)
        if longest is None or len(self._lines[longest]) <= len(self._lines.get(owner, ())) + 1:
            raise self._refuse(owner, "queue_full", f"found {self.waiting} waiting already")
        waiter = self._lines[longest][-1]
        self._take_out(longest, waiter)
        waiter.turned_away = True
        waiter.event.set()

    def _take_out(self, owner: Hashable, waiter: _Waiter) -> None:
        line = self._lines[owner]
        line.remove(waiter)
        self.waiting -= 1
        if not line:
            del self._lines[owner]

    def _refuse(self, owner: Hashable, reason: str, why: str) -> Overloaded:
        if self._on_refused is not None:
            self._on_refused(reason)
        retry_after_s = self.advice_s(self.waiting, self._slots)
        free = self._slots - self.inside
        taken = f"all {self._slots} places for {self.what} are taken"
        if free > 0 and self._held is not None:
            taken = (
                f"you hold {self._held.get(owner, 0)} places for {self.what}, and the last {free} are kept for others"
            )
        return Overloaded(f"{taken}, and the request {why}: try again in a moment", retry_after_s=retry_after_s)


class OwnerLimiter:
    """Places for transfers: a few for each owner, more for all together, with a fair queue in front of both."""

    def __init__(
        self,
        observer: Counters,
        what: str = "transfers",
        *,
        what_own: str = "transfers of yours",
        own: int = OWN,
        everybody: int = EVERYBODY,
        waiting: int = WAITING,
        wait_s: float = WAIT_S,
    ) -> None:
        self._observer = observer
        self._what_own = what_own
        self._most_own = own
        self._waiting = waiting
        self._wait_s = wait_s
        self._own: dict[tuple[Owner, str], FairQueue] = {}
        self.everybody = self._build(what, everybody, shared=True)

    @contextlib.asynccontextmanager
    async def one(self, owner: Owner, part: str = "") -> AsyncIterator[None]:
        """Hold a place for a transfer, waiting for one. Raises QuotaExceeded or Overloaded.

        With a part, such as a sandbox, the owner has as many places for each.
        """
        key = (owner, part)
        queue = self._own.setdefault(key, self._build(self._what_own, self._most_own))
        try:
            await queue.enter(owner)
        except Overloaded as error:
            raise QuotaExceeded(str(error), retry_after_s=error.retry_after_s) from error
        try:
            await self.everybody.enter(owner)
            try:
                yield
            finally:
                self.everybody.leave(owner)
        finally:
            queue.leave(owner)
            # SAFE BECAUSE: a leaver lets waiters in, so a queue with no one inside has no line.
            if not queue.inside and self._own.get(key) is queue:
                del self._own[key]

    def _build(self, what: str, slots: int, *, shared: bool = False) -> FairQueue:
        return FairQueue(
            what,
            slots=slots,
            waiting=self._waiting,
            wait_s=self._wait_s,
            on_refused=self._observer.rejected,
            shared=shared,
        )
