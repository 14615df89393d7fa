"""Who may do how much now: rates and concurrency of a principal, and the places that everybody shares."""

from __future__ import annotations

import contextlib
import math
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from warren.core.observer import Observer
from warren.core.waiting import Gate
from warren.errors import Overloaded, QuotaExceeded
from warren.records import Taken

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from warren.core.policy import Policy
    from warren.records import Owner, Principal
    from warren.stores.base import Store

_WINDOW_S = 60
_RESTART_S = 5.0
"""About when a service that stops is back."""


@dataclass(frozen=True, slots=True)
class Rate(Taken):
    """What taking from a rate gave, and what a client should know of the rate."""

    limit: int
    window_s: int
    reset_s: float
    """When all of it is there again."""


class RateExceeded(QuotaExceeded):
    """A rate of the principal is used up."""

    def __init__(self, message: str, rate: Rate) -> None:
        super().__init__(message, retry_after_s=rate.retry_after_s)
        self.rate = rate


class Admission:
    """Counts what is under way. One for the whole service."""

    def __init__(self, store: Store, policy: Policy, observer: Observer | None = None) -> None:
        self._store = store
        self._policy = policy
        self._observer = observer or Observer()
        self._own: dict[Owner, int] = {}
        self._is_closed = False
        self.creates = self._build_gate("making sandboxes", policy.creates)
        # Shared, because what runs in the background may keep its place for ever.
        self.executions = self._build_gate("executions", policy.executions, shared=True)

    def close(self) -> None:
        """Let nothing more be begun; what is under way, or waits, goes on."""
        self._is_closed = True

    async def check_rate(self, principal: Principal) -> Rate | None:
        """Count a request; None where no rate is set. Raises RateExceeded."""
        limit = self._policy.requests_per_minute
        return await self._take("requests", principal.owner, limit) if limit else None

    @contextlib.asynccontextmanager
    async def creating(self, principal: Principal) -> AsyncIterator[None]:
        """Hold a place among the sandboxes being made. Raises RateExceeded or Overloaded on entering."""
        self._check_open()
        if limit := self._policy.creates_per_minute:
            await self._take("creates", principal.owner, limit)
        await self.creates.enter(principal.owner)
        since = time.monotonic()
        try:
            yield
        finally:
            self.creates.leave(principal.owner, time.monotonic() - since)

    @contextlib.asynccontextmanager
    async def executing(self, principal: Principal) -> AsyncIterator[None]:
        """Hold a place among the executions. Raises QuotaExceeded or Overloaded on entering."""
        self._check_open()
        owner = principal.owner
        self._count(owner)
        try:
            await self.executions.enter(owner)
            since = time.monotonic()
            try:
                yield
            finally:
                self.executions.leave(owner, time.monotonic() - since)
        finally:
            self._discount(owner)

    def own_executions(self, owner: Owner) -> int:
        """Count the executions of an owner that run or wait."""
        return self._own.get(owner, 0)

    def _check_open(self) -> None:
        if self._is_closed:
            raise Overloaded("the service is stopping: try again when it is back", retry_after_s=_RESTART_S)

    def _build_gate(self, what: str, places: int, *, shared: bool = False) -> Gate:
        return Gate(
            what,
            places=places,
            waiting=self._policy.waiting,
            wait_s=self._policy.wait_s,
            on_refused=self._observer.rejected,
            shared=shared,
        )

    async def _take(self, what: str, owner: Owner, limit: int) -> Rate:
        per_s = limit / _WINDOW_S
        taken = await self._store.take(f"{what}\0{owner.tenant}\0{owner.subject}", capacity=limit, per_s=per_s)
        rate = Rate(
            taken.allowed,
            taken.remaining,
            taken.retry_after_s,
            limit=limit,
            window_s=_WINDOW_S,
            reset_s=(limit - taken.remaining) / per_s,
        )
        if not taken.allowed:
            self._observer.rejected(f"{what}_per_minute")
            raise RateExceeded(
                f"more than {limit} {what} in a minute: the next is allowed in {math.ceil(rate.retry_after_s)} s", rate
            )
        return rate

    def _count(self, owner: Owner) -> None:
        own, most = self._own.get(owner, 0), self._policy.own_executions
        if most and own >= most:
            self._observer.rejected("executions")
            raise QuotaExceeded(
                f"your quota of executions at once, {own}, is used up: wait for one to end",
                retry_after_s=self.executions.advice_s(0, most),
            )
        self._own[owner] = own + 1

    def _discount(self, owner: Owner) -> None:
        left = self._own[owner] - 1
        if left:
            self._own[owner] = left
        else:
            del self._own[owner]
