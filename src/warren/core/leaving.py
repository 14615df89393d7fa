"""Sandboxes that are on their way out with nobody waiting for it: whoever finds a quota used up waits for those."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import anyio

if TYPE_CHECKING:
    from collections.abc import Iterator

_PATIENCE_S = 5.0


class Leaving:
    """Knows by their ids which sandboxes are about to be removed."""

    def __init__(self) -> None:
        self._ids: set[str] = set()
        self._gone = anyio.Event()

    def add(self, sandbox_id: str) -> None:
        """Take in one that will be removed soon."""
        self._ids.add(sandbox_id)

    @contextlib.contextmanager
    def removing(self, sandbox_id: str) -> Iterator[None]:
        """Remove one, in the body."""
        try:
            yield
        finally:
            self._ids.discard(sandbox_id)
            self._gone.set()
            self._gone = anyio.Event()

    async def wait(self) -> bool:
        """Wait until those that are leaving now have gone; False when there are none, so that nothing has changed."""
        waited_for = set(self._ids)
        with anyio.move_on_after(_PATIENCE_S):
            while waited_for & self._ids:
                await self._gone.wait()
        return bool(waited_for)
