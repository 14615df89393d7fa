"""Step log: the progress of background work, for any number of followers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

import anyio

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

T = TypeVar("T")


class StepLog(Generic[T]):
    """The steps so far, up to a limit. Followers get all of them, from the first to the end."""

    def __init__(self, most: int) -> None:
        self.steps: list[T] = []
        self._most = most
        self._is_over = False
        self._changed = anyio.Event()

    def note(self, step: T) -> None:
        """Append a step, and wake all followers."""
        if len(self.steps) < self._most:
            self.steps.append(step)
        self._announce()

    def end(self) -> None:
        """Let followers end after the last step."""
        self._is_over = True
        self._announce()

    async def follow(self) -> AsyncGenerator[T, None]:
        """Yield every step from the first to the end."""
        seen = 0
        while True:
            while seen < len(self.steps):
                seen += 1
                yield self.steps[seen - 1]
            if self._is_over:
                return
            await self._changed.wait()

    def _announce(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()
