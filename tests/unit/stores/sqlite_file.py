"""A store for the length of a block, and its file as another process sees it."""

from __future__ import annotations

import contextlib
import sqlite3
from typing import TYPE_CHECKING

from warren.stores.sqlite import SqliteStore

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path


@contextlib.asynccontextmanager
async def open_store(
    folder: Path, *, kept_executions: int | None = None, own_bytes: int | None = None
) -> AsyncIterator[SqliteStore]:
    store = SqliteStore(folder, kept_executions=kept_executions, own_bytes=own_bytes)
    await store.open()
    try:
        yield store
    finally:
        await store.close()


def tamper(folder: Path, *statements: str) -> None:
    """Change the file as a program that can write to it would, past the triggers."""
    with contextlib.closing(sqlite3.connect(folder / "warren.db", isolation_level=None)) as connection:
        triggers = connection.execute("SELECT name, sql FROM sqlite_schema WHERE type = 'trigger'").fetchall()
        for name, _ in triggers:
            connection.execute(f"DROP TRIGGER {name}")
        for statement in statements:
            connection.execute(statement)
        for _, text in triggers:
            connection.execute(text)
