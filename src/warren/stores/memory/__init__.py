"""A store in memory."""

from warren.stores.memory.store import MemoryStore
from warren.stores.memory.tables import Tables

__all__ = ["MemoryStore", "Tables"]
