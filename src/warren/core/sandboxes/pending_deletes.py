"""Sandboxes that are on their way out with nobody waiting for it: whoever finds a quota used up waits for those."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import anyio

if TYPE_CHECKING:
    from collections.abc import Iterator

    from warren.domain.records import Owner

    Going = tuple[Owner, anyio.Event]
    """Whose it is, and what is set when it has gone."""


class PendingDeletes:
    """Knows by their ids which sandboxes are about to be removed."""

    def __init__(self) -> None:
        self._going: dict[str, Going] = {}
        self.patience_s = 5.0

    def add(self, sandbox_id: str, owner: Owner) -> None:
        """Take in one that will be removed soon."""
        self._going[sandbox_id] = (owner, anyio.Event())

    @contextlib.contextmanager
    def removing(self, sandbox_id: str) -> Iterator[None]:
        """Remove one, in the body."""
        try:
            yield
        finally:
            _, gone = self._going.pop(sandbox_id)
            gone.set()

    def look(self) -> tuple[Going, ...]:
        """Return those that are leaving now."""
        return tuple(self._going.values())

    async def wait(self, seen: tuple[Going, ...], whose: Owner | str | None) -> bool:
        """Wait until those that are leaving now, or were `seen` to, have gone.

        Only those count that are an owner's, a tenant's or, for None, anybody's; False when there are none, so that
        nothing has changed.
        """
        awaited = [gone for owner, gone in {*seen, *self.look()} if whose in {owner, owner.tenant, None}]
        with anyio.move_on_after(self.patience_s):
            for gone in awaited:
                await gone.wait()
        return bool(awaited)
