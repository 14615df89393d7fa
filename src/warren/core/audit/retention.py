"""How long the audit record is kept: once an hour, what is older than the operator wants is cut off its beginning."""

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
"""Between two cuts, so that others can write."""

_log = logging.getLogger(__name__)


class Retention:
    """Cuts, and writes into the record what was cut: its numbers, and the hash that the rest goes on from."""

    def __init__(self, store: Store, audit: Audit, policy: Policy) -> None:
        self._store = store
        self._audit = audit
        self._days = policy.audit_days

    async def run(self) -> None:
        """Cut what is due, for as long as the service lives; never, unless the operator said after how many days."""
        while self._days is not None:
            try:
                await self.prune(time.time() - self._days * _DAY_S)
            except Error as error:
                _log.warning("audit.prune_failed", extra={"reason": str(error)})
            await anyio.sleep(_AGAIN_S)

    async def prune(self, before: float) -> int:
        """Cut off all that is from before a time, and return how many rows that were."""
        first, last, hashed = 0, 0, ""
        while (cut := await self._store.prune_audit(before)) is not None:
            first, (_, last, hashed) = first or cut[0], cut
            await anyio.sleep(_PAUSE_S)
        if not first:
            return 0
        await self._audit.record(None, "audit.prune", first=first, last=last, last_hash=hashed)
        return last - first + 1
