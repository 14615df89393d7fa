"""Taking turns: one at a time at each thing, and nothing is kept of what nobody wants."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import anyio

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Hashable


class KeyedLock:
    """Whose turn it is, by whatever they take turns at."""

    def __init__(self) -> None:
        self._turns: dict[Hashable, _Turn] = {}

    @contextlib.asynccontextmanager
    async def one(self, key: Hashable) -> AsyncIterator[None]:
        """Hold the turn at something; whoever comes meanwhile waits."""
        turn = self._turns.setdefault(key, _Turn())
        turn.wanted += 1
        try:
            async with turn.lock:
                yield
        finally:
            turn.wanted -= 1
            if not turn.wanted:
                del self._turns[key]

    def wanted(self, key: Hashable) -> int:
        """Count who has the turn at something, or waits for it."""
        turn = self._turns.get(key)
        return 0 if turn is None else turn.wanted


class _Turn:
    __slots__ = ("lock", "wanted")

    def __init__(self) -> None:
        self.lock = anyio.Lock(fast_acquire=True)
        self.wanted = 0
