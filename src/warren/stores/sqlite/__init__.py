"""The store of one machine: a SQLite file, one writer thread, and an audit chain whose secret is not in the file."""

from warren.stores.sqlite.store import SqliteStore

__all__ = ["SqliteStore"]
