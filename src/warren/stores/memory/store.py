"""MemoryStore: the store seam in the memory of one process, for tests and for services whose records need not survive.

No operation awaits while it changes something, so each is one step for all tasks of the event loop. A store belongs to
one event loop. What each method promises is written in `stores.base`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from warren.stores.memory.audit import AuditRecords
from warren.stores.memory.belongings import EgressRecords, FileRecords, KeyRecords, RenderRecords, SkillRecords
from warren.stores.memory.sandboxes import SandboxRecords
from warren.stores.quotas import Buckets

if TYPE_CHECKING:
    from warren.domain.records import RateDecision
    from warren.stores.memory.tables import Tables


class MemoryStore(SandboxRecords, AuditRecords, EgressRecords, KeyRecords, FileRecords, SkillRecords, RenderRecords):
    """Keeps everything in `Tables`, which end with the process; two stores over the same tables share them."""

    def __init__(self, tables: Tables | None = None, *, kept_executions: int = 1000, own_bytes: int = 0) -> None:
        """Set how many executions of each sandbox are kept, and how many bytes of an owner's; 0 bytes is no bound."""
        super().__init__(tables, kept_executions=kept_executions, own_bytes=own_bytes)
        self._buckets = Buckets()

    async def take(self, bucket: str, *, capacity: int, per_s: float, amount: int = 1) -> RateDecision:
        return self._buckets.take(bucket, capacity=capacity, per_s=per_s, amount=amount)
