"""Deletions in progress. A create that hits its quota waits for them instead of failing."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import anyio

if TYPE_CHECKING:
    from collections.abc import Iterator

    from warren.domain.records import Owner

    Going = tuple[Owner, anyio.Event]
    """The owner, and an event that is set once the sandbox is gone."""


class PendingDeletes:
    """The sandboxes that are removed behind an answer, by id."""

    def __init__(self) -> None:
        self._going: dict[str, Going] = {}
        self.patience_s = 5.0

    def add(self, sandbox_id: str, owner: Owner) -> None:
        """Add a sandbox that will be removed soon."""
        self._going[sandbox_id] = (owner, anyio.Event())

    @contextlib.contextmanager
    def removing(self, sandbox_id: str) -> Iterator[None]:
        """Mark a sandbox as gone after the body, which removes it."""
        try:
            yield
        finally:
            _, gone = self._going.pop(sandbox_id)
            gone.set()

    def look(self) -> tuple[Going, ...]:
        """Return the deletions in progress."""
        return tuple(self._going.values())

    async def wait(self, seen: tuple[Going, ...], whose: Owner | str | None) -> bool:
        """Wait for the deletions in progress now, or `seen` before, 5 seconds at most.

        Only those of an owner or a tenant count, or with None all. Returns False when there are none, so that nothing
        has changed.
        """
        awaited = [gone for owner, gone in {*seen, *self.look()} if whose in {owner, owner.tenant, None}]
        with anyio.move_on_after(self.patience_s):
            for gone in awaited:
                await gone.wait()
        return bool(awaited)
