"""Rendered index pages. A large page is in a file, so that a slow reader holds no memory."""

from __future__ import annotations

import contextlib
import os
import tempfile
import weakref
from collections import OrderedDict
from typing import TYPE_CHECKING

import anyio
from anyio import to_thread

from warren.core.packages.bodies import Body
from warren.core.packages.store import explained

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

LARGE = 128 << 10
_PIECE = 256 << 10
_MEMORY_BYTES = 16 << 20
_DISK_BYTES = 256 << 20
_MOST_FILES = 64
"""Files of pages without readers. A page that is being read exists once, whatever the number of readers."""


class Written:
    """One page. Its file is unlinked, and closed after its last reader."""

    def __init__(self, content: bytes, folder: str) -> None:
        """Write a large page to a file. Blocks on the disk. Raises StoreError."""
        self.size = len(content)
        self.is_large = self.size >= LARGE
        self._folder = folder
        self._content = b"" if self.is_large else content
        if self.is_large:
            with explained(folder), tempfile.TemporaryFile(dir=folder, buffering=0) as file:
                left = memoryview(content)
                while left:
                    left = left[file.write(left) :]
                self._file = os.dup(file.fileno())
            weakref.finalize(self, os.close, self._file)

    @property
    def body(self) -> bytes | AsyncIterator[bytes]:
        """The body, for one reader."""
        return Body(self._read(), contextlib.AsyncExitStack()) if self.is_large else self._content

    async def _read(self) -> AsyncIterator[bytes]:
        for at in range(0, self.size, _PIECE):
            with explained(self._folder):
                piece = await to_thread.run_sync(os.pread, self._file, min(_PIECE, self.size - at), at)
            yield piece


class Rendered:
    """The most recent pages, and all that are being read."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._kept: dict[bool, OrderedDict[tuple[str, ...], Written]] = {False: OrderedDict(), True: OrderedDict()}
        self._read: weakref.WeakValueDictionary[tuple[str, ...], Written] = weakref.WeakValueDictionary()
        self._bytes = {False: 0, True: 0}
        """Sizes of the kept pages: in memory, and in files."""
        self._writing = anyio.Semaphore(2)

    async def get(self, key: tuple[str, ...], render: Callable[[], bytes]) -> Written:
        """Return the page of this key, rendered if necessary. Raises StoreError."""
        found = self._read.get(key)
        if found is None:
            async with self._writing:
                # Another task may have rendered it meanwhile.
                found = self._read.get(key)
                if found is None:
                    found = await to_thread.run_sync(lambda: Written(render(), self._folder))
        return self._keep(key, found)

    def _keep(self, key: tuple[str, ...], page: Written) -> Written:
        # Two tasks may have rendered it at once.
        page = self._read.setdefault(key, page)
        kept, most = self._kept[page.is_large], _DISK_BYTES if page.is_large else _MEMORY_BYTES
        if key not in kept:
            kept[key] = page
            self._bytes[page.is_large] += page.size
        kept.move_to_end(key)
        while self._bytes[page.is_large] > most or (page.is_large and len(kept) > _MOST_FILES):
            self._bytes[page.is_large] -= kept.popitem(last=False)[1].size
        return page
