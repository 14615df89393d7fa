"""Who follows executions that go on without them: each follower has a stream at the agent and memory here."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Self

from warren.domain.errors import QuotaExceeded

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from warren.core.telemetry.counters import Counters
    from warren.domain.records import Owner
    from warren.domain.values import Event

OWN = 256
"""Of one owner at once: of the streams that an agent serves, most are left for everything else."""
_AGAIN_S = 1.0


class Following:
    """The events of one execution for one follower: iterate over it to its end, or close it."""

    def __init__(self, followers: Followers, owner: Owner, events: AsyncGenerator[Event, None]) -> None:
        self._followers = followers
        self._owner = owner
        self._events = events
        self._is_closed = False

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event:
        try:
            return await anext(self._events)
        except BaseException:
            self._leave()
            raise

    async def aclose(self) -> None:
        """Stop following. Safe to call twice."""
        self._leave()
        await self._events.aclose()

    def _leave(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            self._followers.leave(self._owner)


class Followers:
    """Counts them, for each owner."""

    def __init__(self, observer: Counters, most: int = OWN) -> None:
        self._observer = observer
        self._most = most
        self._own: Counter[Owner] = Counter()

    def follow(self, owner: Owner, events: AsyncGenerator[Event, None]) -> Following:
        """Let an owner follow. Raises QuotaExceeded."""
        if self._own[owner] >= self._most:
            self._observer.rejected("followers")
            raise QuotaExceeded(
                f"you follow {self._most} executions already: close some of these streams", retry_after_s=_AGAIN_S
            )
        self._own[owner] += 1
        return Following(self, owner, events)

    def leave(self, owner: Owner) -> None:
        """Count one follower less."""
        self._own[owner] -= 1
        if not self._own[owner]:
            del self._own[owner]
