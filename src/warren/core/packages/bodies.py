"""Response bodies from files: whole or a range, from the disk or during the download."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

from anyio import to_thread

from warren.domain.errors import StoreError

if TYPE_CHECKING:
    import contextlib
    from collections.abc import AsyncIterator, Mapping

    from warren.core.egress.internal_hosts import InnerRequest

_PIECE = 256 << 10
"""Bytes of a file at a time: a slow reader holds one or two pieces, and there may be a thousand readers."""
_RANGE = re.compile(r"bytes=(\d{0,15})-(\d{0,15})")


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
