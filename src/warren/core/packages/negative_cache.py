"""Negative cache: which package indexes lack which projects, so that an index need not be asked, or be up, each time.

Only projects that another index has are remembered: names that a sandbox makes up are never written.
"""

from __future__ import annotations

import hashlib
import time
from collections import OrderedDict
from typing import TYPE_CHECKING

from anyio import to_thread

if TYPE_CHECKING:
    from warren.core.packages.sources import Source
    from warren.core.packages.store import PackageStore

_FRESH_S = 60.0
_KEPT_S = 7 * 86_400.0
"""After this long without an answer, an index may have the project."""
_MOST = 4096


class NegativeCache:
    """Remembers for a short time in memory, and for days on the disk."""

    def __init__(self, store: PackageStore, page_s: float) -> None:
        self._store = store
        self._fresh_s = min(_FRESH_S, page_s)
        self._fresh: OrderedDict[str, float] = OrderedDict()

    def is_fresh(self, source: Source, project: str) -> bool:
        """Whether the index lacked the project recently."""
        return self._fresh.get(_name(source, project), 0.0) > time.monotonic()

    async def was(self, source: Source, project: str) -> bool:
        """Whether the index lacked the project when it last answered. Raises StoreError."""
        raw = await to_thread.run_sync(self._store.read_page, _name(source, project))
        try:
            return raw is not None and 0 <= time.time() - float(raw) < _KEPT_S
        except ValueError:
            return False

    async def remember(self, source: Source, project: str) -> None:
        """Remember that the index lacks a project that another has. Raises StoreError."""
        name = _name(source, project)
        self._fresh[name] = time.monotonic() + self._fresh_s
        self._fresh.move_to_end(name)
        if len(self._fresh) > _MOST:
            self._fresh.popitem(last=False)
        await to_thread.run_sync(self._store.write_page, name, str(time.time()).encode())


def _name(source: Source, project: str) -> str:
    return hashlib.sha256(f"missing\n{source.url}\n{project}".encode()).hexdigest()
