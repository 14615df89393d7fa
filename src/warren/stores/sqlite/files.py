"""Table of stored files; their contents are blobs."""

from __future__ import annotations

import sqlite3
from functools import partial
from typing import TYPE_CHECKING

from warren.domain.errors import Conflict
from warren.domain.records import StoredFile
from warren.stores.encoding import dump_text
from warren.stores.quotas import check_file
from warren.stores.sqlite.table import OWNER, PLAIN, TEXT, Table

if TYPE_CHECKING:
    from warren.domain.records import Owner

_TABLE = Table(
    "files",
    StoredFile,
    {"id": TEXT, **OWNER, "name": TEXT, "sha256": TEXT, "blob": TEXT}
    | {"size": PLAIN, "created_at": PLAIN, "expires_at": PLAIN},
)


def add(connection: sqlite3.Connection, file: StoredFile, *, own_bytes: int = 0, all_bytes: int = 0) -> None:
    """Insert a file. Raises Conflict and QuotaExceeded."""
    check_file(file, own_bytes, all_bytes, partial(measure, connection))
    try:
        _TABLE.insert(connection, file, weight=file.weight)
    except sqlite3.IntegrityError as exc:
        raise Conflict(f"there is a file {file.id} already") from exc


def get(connection: sqlite3.Connection, file_id: str) -> StoredFile | None:
    """Read a file."""
    return _TABLE.get(connection, "id = ?", file_id)


def get_all(connection: sqlite3.Connection, owner: Owner | None) -> tuple[StoredFile, ...]:
    """Read the files of an owner, or of all, oldest first."""
    if owner is None:
        return _TABLE.get_all(connection, "ORDER BY created_at, seq")
    rest = "WHERE tenant = ? AND subject = ? ORDER BY created_at, seq"
    return _TABLE.get_all(connection, rest, *map(dump_text, owner))


def remove(connection: sqlite3.Connection, file_id: str) -> bool:
    """Delete a file."""
    return _TABLE.remove(connection, file_id)


def remove_expired(connection: sqlite3.Connection, *, expired_at: float, limit: int) -> tuple[StoredFile, ...]:
    """Delete expired files, and return them."""
    found = _TABLE.get_all(connection, "WHERE expires_at <= ? ORDER BY expires_at, seq LIMIT ?", expired_at, limit)
    for file in found:
        remove(connection, file.id)
    return found


def measure(connection: sqlite3.Connection, owner: Owner | None) -> int:
    """Sum the bytes of files."""
    if owner is None:
        found = connection.execute("SELECT sum(bytes) FROM files_weigh").fetchone()
    else:
        statement = "SELECT bytes FROM files_weigh WHERE tenant = ? AND subject = ?"
        found = connection.execute(statement, tuple(map(dump_text, owner))).fetchone()
    return int((found or (0,))[0] or 0)
