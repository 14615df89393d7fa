"""An event for the many things that nobody ends up waiting for: it costs nothing before somebody does."""

from __future__ import annotations

import anyio


class LazyEvent:
    """Something that happens once. As `anyio.Event`, but whoever comes late goes on at once."""

    __slots__ = ("_event", "_is_set")

    def __init__(self) -> None:
        self._is_set = False
        self._event: anyio.Event | None = None

    def is_set(self) -> bool:
        """Whether it has happened."""
        return self._is_set

    def set(self) -> None:
        """Have it happen."""
        self._is_set = True
        if self._event is not None:
            self._event.set()

    async def wait(self) -> None:
        """Wait until it has happened."""
        if not self._is_set:
            if self._event is None:
                self._event = anyio.Event()
            await self._event.wait()
