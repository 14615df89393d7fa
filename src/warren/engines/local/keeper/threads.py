"""Threads of the keeper, for work that waits for a disk: what one create does there delays no other.

1. Work in a thread takes no lock that code after a fork needs: the keeper forks zygotes, and a lock that a thread holds
   stays locked in them for ever. System calls and the programs of e2fsprogs take none.
2. Slow and quick work have bounds of their own, so quick work never waits for slow work. Together they leave threads of
   asyncio's executor, which has at least five, to the zygotes.
3. Cancelled work is waited for, and undone: a thread cannot be stopped.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")

QUICK = 2
SLOW = 2


class Threads:
    """Two bounds on blocking work."""

    def __init__(self) -> None:
        self._quick = asyncio.Semaphore(QUICK)
        self._slow = asyncio.Semaphore(SLOW)

    async def run_quick(self, work: Callable[[], T], undo: Callable[[T], None] | None = None) -> T:
        """Run work of milliseconds: a copy of a template, a loop device, a mount. `undo` takes a cancelled result."""
        return await _run(self._quick, work, undo)

    async def run_slow(self, work: Callable[[], T]) -> T:
        """Run work that may take seconds: mkfs, e2fsck, another owner for every file of a workspace."""
        return await _run(self._slow, work, None)


async def _run(bound: asyncio.Semaphore, work: Callable[[], T], undo: Callable[[T], None] | None) -> T:
    async with bound:
        running = asyncio.ensure_future(asyncio.to_thread(work))
        try:
            return await asyncio.shield(running)
        except asyncio.CancelledError:
            await asyncio.wait([running])
            if undo is not None and running.exception() is None:
                undo(running.result())
            raise
