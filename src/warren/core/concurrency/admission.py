"""Admission: rates and concurrency of each principal and tenant, and the places that all share."""

from __future__ import annotations

import contextlib
import math
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from warren.core.concurrency.fair_queue import FairQueue
from warren.core.telemetry.counters import Counters
from warren.domain.errors import Overloaded, QuotaExceeded
from warren.domain.records import RateDecision

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from warren.core.policy.policy import Policy
    from warren.domain.records import Owner, Principal
    from warren.stores.base import Store

T = TypeVar("T")

_WINDOW_S = 60
_RESTART_S = 5.0
"""About how long a restart takes."""


@dataclass(frozen=True, slots=True)
class Rate(RateDecision):
    """The decision of a rate, and the rate itself, for the headers of an answer."""

    limit: int
    window_s: int
    reset_s: float
    """When the whole rate is available again."""


class RateExceeded(QuotaExceeded):
    """A rate of the principal is used up."""

    def __init__(self, message: str, rate: Rate) -> None:
        super().__init__(message, retry_after_s=rate.retry_after_s)
        self.rate = rate


class Admission:
    """Counts creates and executions under way. One for the whole service."""

    def __init__(self, store: Store, policy: Policy, observer: Counters | None = None) -> None:
        self._store = store
        self._policy = policy
        self._observer = observer or Counters()
        self._own: dict[Owner, int] = {}
        self._tenants: dict[str, int] = {}
        self._is_closed = False
        # Shared, because a disk that is large or new takes long, and an execution in the background for ever.
        self.creates = self._build_queue("making sandboxes", policy.creates, shared=True)
        self.executions = self._build_queue("executions", policy.executions, shared=True)

    def close(self) -> None:
        """Refuse everything new; what is under way, or waits, goes on."""
        self._is_closed = True

    async def check_rate(self, principal: Principal) -> Rate | None:
        """Count a request; None where no rate is set. Raises RateExceeded."""
        return await self._take_both("requests", principal.owner)

    @contextlib.asynccontextmanager
    async def creating(self, principal: Principal, *, is_again: bool = False) -> AsyncIterator[None]:
        """Hold a place among the sandboxes being made. Raises RateExceeded or Overloaded on entering.

        `is_again` is a second attempt of one create, which the rate counts once.
        """
        self._check_open()
        if not is_again:
            await self._take_both("creates", principal.owner)
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

    def _build_queue(self, what: str, slots: int, *, shared: bool = False) -> FairQueue:
        return FairQueue(
            what,
            slots=slots,
            waiting=self._policy.waiting,
            wait_s=self._policy.wait_s,
            on_refused=self._observer.rejected,
            shared=shared,
        )

    async def _take_both(self, what: str, owner: Owner) -> Rate | None:
        """Take from the owner's rate and from the tenant's; return the one with less left."""
        name = f"{what}_per_minute"
        own, of_tenant = getattr(self._policy, name), getattr(self._policy.ceiling_of(owner.tenant), name)
        rate = await self._take(what, f"{owner.tenant}\0{owner.subject}", own) if own else None
        if of_tenant:
            whole = await self._take(what, owner.tenant, of_tenant, f" of tenant {owner.tenant!r}")
            rate = whole if rate is None or whole.remaining < rate.remaining else rate
        return rate

    async def _take(self, what: str, whose: str, limit: int, of_whom: str = "") -> Rate:
        per_s = limit / _WINDOW_S
        taken = await self._store.take(f"{what}\0{whose}", capacity=limit, per_s=per_s)
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
                f"more than {limit} {what}{of_whom} in a minute: "
                f"the next is allowed in {math.ceil(rate.retry_after_s)} s",
                rate,
            )
        return rate

    def _count(self, owner: Owner) -> None:
        own, whole = self._own.get(owner, 0), self._tenants.get(owner.tenant, 0)
        self._check_place(own, self._policy.own_executions, "your quota")
        of_tenant = self._policy.ceiling_of(owner.tenant).executions
        self._check_place(whole, of_tenant, f"the ceiling of tenant {owner.tenant!r}")
        self._own[owner] = own + 1
        self._tenants[owner.tenant] = whole + 1

    def _check_place(self, taken: int, most: int, whose: str) -> None:
        if most and taken >= most:
            self._observer.rejected("executions")
            raise QuotaExceeded(
                f"{whose} of executions at once, {most}, is used up: wait for one to end",
                retry_after_s=self.executions.advice_s(0, most),
            )

    def _discount(self, owner: Owner) -> None:
        _take_away(self._own, owner)
        _take_away(self._tenants, owner.tenant)


def _take_away(counts: dict[T, int], key: T) -> None:
    counts[key] -= 1
    if not counts[key]:
        del counts[key]
