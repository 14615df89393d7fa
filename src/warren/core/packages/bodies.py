"""Response bodies: of files, whole or a range, and of rendered index pages. A slow reader holds no large body."""

from __future__ import annotations

import contextlib
import os
import re
import tempfile
import weakref
from collections import OrderedDict
from typing import TYPE_CHECKING

import anyio
from anyio import to_thread

from warren.core.packages.store import explained
from warren.domain.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping

    from warren.core.egress.internal_hosts import InnerRequest

_PIECE = 256 << 10
"""Bytes of a file at a time: a slow reader holds one or two pieces, and there may be a thousand readers."""
_RANGE = re.compile(r"bytes=(\d{0,15})-(\d{0,15})")
LARGE = 128 << 10
_MEMORY_BYTES = 16 << 20
_DISK_BYTES = 256 << 20
_MOST_FILES = 64
"""Files of pages without readers. A page that is being read exists once, whatever the number of readers."""


class Body:
    """A stream of pieces and the resources it holds, which are released at its end or when it is closed."""

    def __init__(self, pieces: AsyncIterator[bytes], held: contextlib.AsyncExitStack) -> None:
        self._pieces = pieces
        self._held = held

    def __aiter__(self) -> Body:
        return self

    async def __anext__(self) -> bytes:
        try:
            return await anext(self._pieces)
        except BaseException:
            await self.aclose()
            raise

    async def aclose(self) -> None:
        """Release the resources."""
        await self._held.aclose()


def build_head(
    request: InnerRequest, size: int | None, headers: Mapping[str, str]
) -> tuple[int, int, int | None, dict[str, str]]:
    """Return status, first and last byte, and headers of the response, for a file of that size."""
    shown = {"content-type": "application/octet-stream", "accept-ranges": "bytes", **headers}
    asked = None if size is None else _read_range(request.headers.get("range", ""), size)
    if asked is None or size is None:
        if size is not None:
            shown["content-length"] = str(size)
        return 200, 0, size, shown
    start, stop = asked
    if start >= stop:
        return 416, 0, 0, {**shown, "content-range": f"bytes */{size}", "content-length": "0"}
    return (
        206,
        start,
        stop,
        {**shown, "content-range": f"bytes {start}-{stop - 1}/{size}", "content-length": str(stop - start)},
    )


async def read_file(file: int, start: int, stop: int) -> AsyncIterator[bytes]:
    """Yield a part of an open file. Raises StoreError when the disk fails."""
    at = start
    while at < stop:
        try:
            piece = await to_thread.run_sync(os.pread, file, min(_PIECE, stop - at), at)
        except OSError as exc:
            raise StoreError(f"a package cannot be read: {exc.strerror}") from exc
        if not piece:
            raise StoreError("a package is shorter than it was")
        at += len(piece)
        yield piece


def _read_range(text: str, size: int) -> tuple[int, int] | None:
    """Parse a range of one part; None for any other, which is answered with the whole file."""
    found = _RANGE.fullmatch(text.strip())
    if found is None or found[0] == "bytes=-":
        return None
    first, last = found.groups()
    if not first:
        return max(0, size - int(last)), size
    return int(first), min(size, int(last) + 1) if last else size


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
