"""Owner limit: how many transfers run at once. Each one that a slow client reads holds a window of memory."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from warren.core.concurrency.fair_queue import FairQueue
from warren.domain.errors import Overloaded, QuotaExceeded

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from warren.core.telemetry.counters import Counters
    from warren.domain.records import Owner

OWN = 32
"""Transfers of one owner at once; a slow reader delays only its own."""
EVERYBODY = 128
"""Of all owners. At about 2 MiB each, this bounds the memory of all transfers."""
WAITING = 512
WAIT_S = 30.0


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
