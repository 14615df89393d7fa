"""Audit retention: once an hour, rows older than `records.audit_days` are cut off the beginning."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

import anyio

from warren.domain.errors import Error

if TYPE_CHECKING:
    from warren.core.audit.log import Audit
    from warren.core.policy.policy import Policy
    from warren.stores.base import Store

_DAY_S = 86_400
_AGAIN_S = 3600.0
_PAUSE_S = 0.05
"""Pause between two cuts, so that other writers proceed."""

_log = logging.getLogger(__name__)


class Retention:
    """Cuts the record, and audits the cut: the numbers of its rows, and the hash that the rest continues from."""

    def __init__(self, store: Store, audit: Audit, policy: Policy) -> None:
        self._store = store
        self._audit = audit
        self._days = policy.audit_days

    async def run(self) -> None:
        """Cut due rows until the service stops; returns at once where no retention is set."""
        while self._days is not None:
            try:
                await self.prune(time.time() - self._days * _DAY_S)
            except Error as error:
                _log.warning("audit.prune_failed", extra={"reason": str(error)})
            await anyio.sleep(_AGAIN_S)

    async def prune(self, before: float) -> int:
        """Cut all rows before a time, and return their number."""
        first, last, hashed = 0, 0, ""
        while (cut := await self._store.prune_audit(before)) is not None:
            first, (_, last, hashed) = first or cut[0], cut
            await anyio.sleep(_PAUSE_S)
        if not first:
            return 0
        await self._audit.record(None, "audit.prune", first=first, last=last, last_hash=hashed)
        return last - first + 1
