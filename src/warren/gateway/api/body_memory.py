"""Memory for bodies that are held whole while they arrive, limited for each owner and in all."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import anyio

from warren.domain.errors import Overloaded, QuotaExceeded
from warren.domain.values import MIB

if TYPE_CHECKING:
    from collections.abc import Iterator

    from warren.domain.records import Owner

OWN = 128 * MIB
EVERYBODY = 1024 * MIB
_AGAIN_S = 1.0


class BodyMemory:
    """Counts the bytes that are held. Callers do not count small bodies (`count_large`)."""

    def __init__(self, own: int = OWN, everybody: int = EVERYBODY) -> None:
        self._most_own = own
        self._most = everybody
        self._own: dict[Owner, int] = {}
        self.held = 0
        self.reading = anyio.CapacityLimiter(1)
        """One thread parses long bodies, one after the other: parsed, a body is several times as large."""

    @contextlib.contextmanager
    def hold(self, owner: Owner, size: int) -> Iterator[None]:
        """Hold `size` bytes. Raises QuotaExceeded and Overloaded; one body alone always fits."""
        own = self._own.get(owner, 0)
        if own and own + size > self._most_own:
            raise QuotaExceeded(
                f"your requests already hold {own} bytes of memory: wait for one to be answered",
                retry_after_s=_AGAIN_S,
            )
        if self.held and self.held + size > self._most:
            raise Overloaded(
                "the service has no memory for a body of this size now: try again in a moment", retry_after_s=_AGAIN_S
            )
        self._own[owner] = own + size
        self.held += size
        try:
            yield
        finally:
            self.held -= size
            self._own[owner] -= size
            if not self._own[owner]:
                del self._own[owner]
