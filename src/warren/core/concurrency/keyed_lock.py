"""Keyed lock: one holder per key; unused keys are dropped."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import anyio

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Hashable


class KeyedLock:
    """A lock for each key, made when it is first wanted."""

    def __init__(self) -> None:
        self._entries: dict[Hashable, _Entry] = {}

    @contextlib.asynccontextmanager
    async def hold(self, key: Hashable, wait_s: float | None = None) -> AsyncIterator[None]:
        """Hold the lock of a key, in the order in which callers came. Raises TimeoutError after `wait_s` seconds."""
        entry = self._entries.setdefault(key, _Entry())
        entry.users += 1
        try:
            with anyio.fail_after(wait_s):
                await entry.lock.acquire()
            try:
                yield
            finally:
                entry.lock.release()
        finally:
            entry.users -= 1
            if not entry.users:
                del self._entries[key]

    def users(self, key: Hashable) -> int:
        """Count the holder of a key and the callers that wait for it."""
        entry = self._entries.get(key)
        return 0 if entry is None else entry.users


class _Entry:
    __slots__ = ("lock", "users")

    def __init__(self) -> None:
        self.lock = anyio.Lock(fast_acquire=True)
        self.users = 0
