"""Store in a SQLite file of one machine: one writer thread, and an audit chain whose secret is outside the file."""

from warren.stores.sqlite.store import SqliteStore

__all__ = ["SqliteStore"]
