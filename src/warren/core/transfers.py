"""How many files pass through the service at once: each that a slow client reads holds a window of memory here."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from warren.core.waiting import Gate
from warren.errors import Overloaded, QuotaExceeded

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from warren.core.observer import Observer
    from warren.records import Owner

OWN = 32
"""Transfers of one owner at once; whoever reads slowly keeps only themselves waiting."""
EVERYBODY = 128
"""Of all owners. At about 2 MiB each, this is what files can cost the service."""
WAITING = 512
WAIT_S = 30.0


class Transfers:
    """Places for transfers: a few for each owner, more for all together, and a line in front of both."""

    def __init__(
        self,
        observer: Observer,
        what: str = "transfers",
        *,
        own: int = OWN,
        everybody: int = EVERYBODY,
        waiting: int = WAITING,
        wait_s: float = WAIT_S,
    ) -> None:
        self._observer = observer
        self._what = what
        self._most_own = own
        self._waiting = waiting
        self._wait_s = wait_s
        self._own: dict[Owner, Gate] = {}
        self.everybody = self._build(what, everybody, shared=True)

    @contextlib.asynccontextmanager
    async def one(self, owner: Owner) -> AsyncIterator[None]:
        """Hold a place for a transfer, waiting for one. Raises QuotaExceeded or Overloaded."""
        gate = self._own.setdefault(owner, self._build(f"{self._what} of yours", self._most_own))
        try:
            await gate.enter(owner)
        except Overloaded as error:
            raise QuotaExceeded(str(error), retry_after_s=error.retry_after_s) from error
        try:
            await self.everybody.enter(owner)
            try:
                yield
            finally:
                self.everybody.leave(owner)
        finally:
            gate.leave(owner)
            # SAFE BECAUSE: whoever waits is let in when one leaves, so an empty gate has no line.
            if not gate.inside and self._own.get(owner) is gate:
                del self._own[owner]

    def _build(self, what: str, places: int, *, shared: bool = False) -> Gate:
        return Gate(
            what,
            places=places,
            waiting=self._waiting,
            wait_s=self._wait_s,
            on_refused=self._observer.rejected,
            shared=shared,
        )
