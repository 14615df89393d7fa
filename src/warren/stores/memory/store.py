"""MemoryStore: the store seam in the memory of one process, for tests and for services whose records need not survive.

No operation awaits while it changes something, so each is one step for all tasks of the event loop. A store belongs to
one event loop. What each method promises is written in `stores.base`.
"""

from __future__ import annotations

from warren.stores.memory.audit import AuditRecords
from warren.stores.memory.belongings import EgressRecords, FileRecords, KeyRecords, RenderRecords, SkillRecords
from warren.stores.memory.sandboxes import SandboxRecords


class MemoryStore(SandboxRecords, AuditRecords, EgressRecords, KeyRecords, FileRecords, SkillRecords, RenderRecords):
    """Keeps everything in `Tables`, which end with the process; two stores over the same tables share them."""
