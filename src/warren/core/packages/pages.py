"""Page cache of indexes: fresh for a while, then revalidated, and used stale when the index does not answer."""

from __future__ import annotations

import hashlib
import re
import threading
import time
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import anyio
import orjson
from anyio import to_thread

from warren.core.concurrency.keyed_lock import KeyedLock
from warren.core.packages.fetch import Unfetched

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping

    from warren.core.concurrency.fair_queue import FairQueue
    from warren.core.packages.fetch import Fetcher
    from warren.core.packages.sources import Source
    from warren.core.packages.store import PackageStore

_FORMAT = 1
"""Part of every file name: pages of another format are not found."""
_REST_S = 20.0
"""Seconds that an index which did not answer is not asked again, where a stale page exists."""
_ASKING = 16
"""Requests to one index at once."""
_LARGE = 1 << 20
_RECENT_BYTES = 8 << 20
_MAX_AGE = re.compile(r"max-age=(\d{1,9})")


@dataclass(frozen=True, slots=True)
class Page:
    """The parsed page of an index; `stamp` changes with it."""

    content: Any
    stamp: str
    is_stale: bool = False
    """Whether the index could not be asked whether it changed."""


class Turn:
    """Permission to hold a large page in memory. Two requests have it at a time.

    Parsing and rendering a large page delays all tasks, and takes ten times its size on the wire in memory.
    """

    def __init__(self, queue: FairQueue, owner: Hashable) -> None:
        self._queue = queue
        self._owner = owner
        self._lock = anyio.Lock()
        self._has_it = False

    async def take(self, size: int) -> None:
        """Wait for permission before a page of that size is read; small pages need none. Raises Overloaded."""
        if size < _LARGE:
            return
        async with self._lock:
            if not self._has_it:
                await self._queue.enter(self._owner)
                self._has_it = True

    def leave(self) -> None:
        """Release the permission."""
        if self._has_it:
            self._has_it = False
            self._queue.leave(self._owner)


class Pages:
    """Fetches pages and caches them on disk. A page that the index does not have is not cached."""

    def __init__(self, store: PackageStore, fetcher: Fetcher, page_s: float) -> None:
        self._store = store
        self._fetcher = fetcher
        self._page_s = page_s
        self._down_until: dict[str, float] = {}
        self._fetching = KeyedLock()
        self._asking: dict[str, anyio.Semaphore] = {}
        """By index, so that a slow index delays only the requests to it."""
        self._recent: OrderedDict[str, dict[str, Any]] = OrderedDict()
        self._recent_bytes = 0
        self._remembering = threading.Lock()

    async def get(
        self, url: str, source: Source, headers: Mapping[str, str], parse: Callable[[str, str, bytes], Any], turn: Turn
    ) -> Page:
        """Return a page as `parse` builds it from address, type and body. Raises Unfetched, StoreError, Overloaded."""
        asked = "\n".join([str(_FORMAT), url, *sorted(headers.values())])
        name = hashlib.sha256(asked.encode()).hexdigest()
        # The first caller fetches; the others find the page that it kept.
        async with self._fetching.hold(name):
            return await self._get(name, url, source, headers, parse, turn=turn)

    async def _get(
        self,
        name: str,
        url: str,
        source: Source,
        headers: Mapping[str, str],
        parse: Callable[[str, str, bytes], Any],
        *,
        turn: Turn,
    ) -> Page:
        kept = self._recent.get(name) or await self._read(name, turn)
        if kept is not None and 0 <= time.time() - kept["at"] < kept["fresh_s"]:
            return Page(kept["content"], kept["stamp"])
        if kept is not None and self._down_until.get(source.url, 0) > time.monotonic():
            return Page(kept["content"], kept["stamp"], is_stale=True)
        # Few at once: each page may be large.
        async with self._asking.setdefault(source.url, anyio.Semaphore(_ASKING)):
            return await self._ask(name, url, source, headers, parse, kept=kept, turn=turn)

    async def _ask(
        self,
        name: str,
        url: str,
        source: Source,
        headers: Mapping[str, str],
        parse: Callable[[str, str, bytes], Any],
        *,
        kept: dict[str, Any] | None,
        turn: Turn,
    ) -> Page:
        asked = {**headers, "If-None-Match": kept["etag"]} if kept is not None and kept["etag"] else dict(headers)
        try:
            answer, body = await self._fetcher.get_page(url, source, asked)
        except Unfetched as error:
            if error.is_down:
                self._down_until[source.url] = time.monotonic() + _REST_S
            if kept is None or not error.is_down:
                raise
            return Page(kept["content"], kept["stamp"], is_stale=True)
        if answer.status == 304 and kept is None:
            raise Unfetched("the package index answers 304 to a request without a validator")
        kind = answer.headers.get("content-type", "")
        fresh: dict[str, Any] = {"at": time.time(), "fresh_s": self._find_age(answer.headers)}
        if answer.status == 304 and kept is not None:
            fresh = {**kept, **fresh}
        else:
            await turn.take(len(body))
            content = await to_thread.run_sync(parse, answer.url, kind, body)
            stamp = hashlib.sha256(body).hexdigest()[:32]
            fresh |= {"etag": answer.headers.get("etag", ""), "stamp": stamp, "content": content}
        await to_thread.run_sync(self._write, name, fresh)
        return Page(fresh["content"], fresh["stamp"])

    def _find_age(self, headers: Mapping[str, str]) -> float:
        found = _MAX_AGE.search(headers.get("cache-control", ""))
        return min(self._page_s, float(found[1])) if found else self._page_s

    async def _read(self, name: str, turn: Turn) -> dict[str, Any] | None:
        raw = await to_thread.run_sync(self._store.read_page, name)
        if raw is None:
            return None
        await turn.take(len(raw))
        try:
            kept = await to_thread.run_sync(orjson.loads, raw)
        except orjson.JSONDecodeError:
            return None
        if not isinstance(kept, dict):
            return None
        self._remember(name, kept, len(raw))
        return kept

    def _write(self, name: str, page: dict[str, Any]) -> None:
        try:
            raw = orjson.dumps({**page, "bytes": 0})
        except TypeError as exc:
            raise Unfetched("the package index sent a page that is nested too deep") from exc
        self._store.write_page(name, raw)
        self._remember(name, page, len(raw))

    def _remember(self, name: str, page: dict[str, Any], size: int) -> None:
        """Keep recently used pages parsed: parsing a large page takes longer than sending it."""
        with self._remembering:
            before = self._recent.pop(name, None)
            self._recent_bytes += size - (before["bytes"] if before else 0)
            page["bytes"] = size
            self._recent[name] = page
            while self._recent_bytes > _RECENT_BYTES and len(self._recent) > 1:
                self._recent_bytes -= self._recent.popitem(last=False)[1]["bytes"]
