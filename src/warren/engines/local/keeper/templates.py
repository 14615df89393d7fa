"""Templates: empty disk images that those of workspaces are copied from. One for each step of sizes, and few of them.

Sizes are rounded up to four steps a doubling, so callers that name any size share them. The least recently used ones
are removed above a number and a sum of bytes, except those that are being copied.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from warren.engines.local.linux import disk_image

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from warren.domain.values import Limits
    from warren.engines.local.keeper.threads import Threads

MOST = 128
MOST_BYTES = 256 << 20
_SUFFIX = ".ext4"


class Size(NamedTuple):
    """Room of an image: bytes and inodes."""

    bytes: int
    inodes: int

    @classmethod
    def of(cls, limits: Limits) -> Size:
        """Return the step that has room for these limits."""
        return cls(round_up(limits.disk_bytes), limits.disk_inodes)


def round_up(size: int) -> int:
    """Round a size up to the next step: 4, 5, 6 or 7 times a power of two."""
    step = 1 << max((size - 1).bit_length() - 3, 0)
    return -(-size // step) * step


class Templates:
    """The templates in one folder."""

    def __init__(self, folder: str, threads: Threads, *, most: int = MOST, most_bytes: int = MOST_BYTES) -> None:
        self._folder = folder
        self._threads = threads
        self._most = most
        self._most_bytes = most_bytes
        self._known: dict[str, int] = {}
        """Bytes on disk by name, the least recently used first."""
        self._users: Counter[str] = Counter()
        self._making: dict[str, asyncio.Task[None]] = {}
        os.makedirs(folder, mode=0o700, exist_ok=True)
        self._load()

    @contextlib.asynccontextmanager
    async def use(self, size: Size, *, journal: bool) -> AsyncIterator[str]:
        """Yield the path of a template, made if it is missing; it stays until the block ends."""
        name = f"{size.bytes}-{size.inodes}{'-journal' if journal else ''}{_SUFFIX}"
        self._users[name] += 1
        try:
            if name not in self._known:
                await self._make(name, size, journal=journal)
            self._known[name] = self._known.pop(name)
            yield os.path.join(self._folder, name)
        finally:
            self._users[name] -= 1
            self._trim()

    async def _make(self, name: str, size: Size, *, journal: bool) -> None:
        """Make a template; creates that need the same one at the same time share the work."""
        task = self._making.get(name)
        if task is None:
            task = self._making[name] = asyncio.create_task(self._format(name, size, journal=journal))
            task.add_done_callback(lambda _: self._making.pop(name))
        # The others go on waiting when one of them leaves.
        await asyncio.shield(task)

    async def _format(self, name: str, size: Size, *, journal: bool) -> None:
        path = os.path.join(self._folder, name)
        await self._threads.run_slow(partial(disk_image.make_template, path, size.bytes, size.inodes, journal))
        self._known[name] = os.stat(path).st_blocks * 512

    def _load(self) -> None:
        found = []
        for entry in os.scandir(self._folder):
            info = entry.stat(follow_symlinks=False)
            if entry.name.endswith(_SUFFIX) and not entry.name.startswith("spare-"):
                found.append((info.st_atime, entry.name, info.st_blocks * 512))
            else:
                # A spare, or a half-made template, of an earlier keeper that was killed.
                os.unlink(entry.path)
        self._known = {name: size for _, name, size in sorted(found)}
        self._trim()

    def _trim(self) -> None:
        for name in [name for name in self._known if not self._users[name]]:
            if len(self._known) <= self._most and sum(self._known.values()) <= self._most_bytes:
                break
            del self._known[name]
            with contextlib.suppress(FileNotFoundError):
                os.unlink(os.path.join(self._folder, name))
        self._users += Counter()
