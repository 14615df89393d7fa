"""Schema, made by the numbered files in `migrations`. A released migration never changes: another is added.

Text columns hold text, or bytes where the text is not Unicode (`encoding.dump_text`), so the tables are not STRICT.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import time
from typing import TYPE_CHECKING

from warren.domain.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Iterator

_FOLDER = os.path.join(os.path.dirname(__file__), "migrations")


def list_migrations() -> list[str]:
    """Return the files of all migrations; the first is number 1."""
    return [os.path.join(_FOLDER, name) for name in sorted(os.listdir(_FOLDER)) if name.endswith(".sql")]


def read_version(connection: sqlite3.Connection) -> int:
    """Return the number of the last applied migration; 0 for an empty database."""
    known = connection.execute("SELECT 1 FROM sqlite_schema WHERE name = 'schema_version'").fetchone()
    if known is None:
        return 0
    (version,) = connection.execute("SELECT max(version) FROM schema_version").fetchone()
    return int(version or 0)


def migrate(connection: sqlite3.Connection, path: str) -> None:
    """Apply the missing migrations, each in its own transaction. Raises StoreError for the file of a later version."""
    version, known = read_version(connection), list_migrations()
    if version > len(known):
        raise StoreError(
            f"{path} is of a later version of Warren (schema {version}, and this one knows {len(known)}): "
            f"use that version, or restore a backup of the file from before it"
        )
    for number, file in enumerate(known[version:], version + 1):
        _make(connection, number, file)


def _make(connection: sqlite3.Connection, number: int, file: str) -> None:
    with transaction(connection, "IMMEDIATE"):
        # WHY: another process may have applied it while this one waited for the lock.
        if read_version(connection) < number:
            connection.execute("CREATE TABLE IF NOT EXISTS schema_version (version INTEGER PRIMARY KEY, made_at REAL)")
            for statement in read_statements(file):
                connection.execute(statement)
            connection.execute("INSERT INTO schema_version VALUES (?, ?)", (number, time.time()))


@contextlib.contextmanager
def transaction(connection: sqlite3.Connection, kind: str) -> Iterator[None]:
    """Open a transaction: DEFERRED for a snapshot, IMMEDIATE to exclude all other writers."""
    connection.execute(f"BEGIN {kind}")
    try:
        yield
        connection.execute("COMMIT")
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")


def read_statements(file: str) -> list[str]:
    """Return the statements of a migration. `executescript` would commit the surrounding transaction."""
    found: list[str] = []
    pending = ""
    with open(file, encoding="utf-8") as script:
        for line in script:
            pending += line
            if sqlite3.complete_statement(pending):
                found.append(pending.strip())
                pending = ""
    return found
