"""Table of stored files; their contents are blobs."""

from __future__ import annotations

import sqlite3
from functools import partial
from typing import TYPE_CHECKING, Any

from warren.domain.errors import Conflict
from warren.domain.records import Owner, StoredFile
from warren.stores.encoding import dump_text, load_text
from warren.stores.quotas import check_file

if TYPE_CHECKING:
    from collections.abc import Sequence

_COLUMNS = "id, tenant, subject, name, sha256, blob, size, created_at, expires_at"


def add(connection: sqlite3.Connection, file: StoredFile, *, own_bytes: int, all_bytes: int) -> None:
    """Insert a file. Raises Conflict and QuotaExceeded."""
    check_file(file, own_bytes, all_bytes, partial(measure, connection))
    texts = map(dump_text, (file.id, *file.owner, file.name, file.sha256, file.blob))
    try:
        connection.execute(
            f"INSERT INTO files ({_COLUMNS}, weight) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",  # noqa: S608 - our own names
            (*texts, file.size, file.created_at, file.expires_at, file.weight),
        )
    except sqlite3.IntegrityError as exc:
        raise Conflict(f"there is a file {file.id} already") from exc


def get(connection: sqlite3.Connection, file_id: str) -> StoredFile | None:
    """Read a file."""
    row = connection.execute(f"SELECT {_COLUMNS} FROM files WHERE id = ?", (dump_text(file_id),)).fetchone()  # noqa: S608 - our own names
    return None if row is None else _load(row)


def get_all(connection: sqlite3.Connection, owner: Owner | None) -> tuple[StoredFile, ...]:
    """Read the files of an owner, or of all, oldest first."""
    which, values = ("", ()) if owner is None else ("WHERE tenant = ? AND subject = ?", tuple(map(dump_text, owner)))
    statement = f"SELECT {_COLUMNS} FROM files {which} ORDER BY created_at, seq"  # noqa: S608 - our own words
    return tuple(map(_load, connection.execute(statement, values).fetchall()))


def remove(connection: sqlite3.Connection, file_id: str) -> bool:
    """Delete a file."""
    return connection.execute("DELETE FROM files WHERE id = ?", (dump_text(file_id),)).rowcount > 0


def remove_expired(connection: sqlite3.Connection, at: float, limit: int) -> tuple[StoredFile, ...]:
    """Delete expired files, and return them."""
    statement = f"SELECT {_COLUMNS} FROM files WHERE expires_at <= ? ORDER BY expires_at, seq LIMIT ?"  # noqa: S608 - our own names
    found = tuple(map(_load, connection.execute(statement, (at, limit)).fetchall()))
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


def _load(row: Sequence[Any]) -> StoredFile:
    *texts, size, created_at, expires_at = row
    file_id, tenant, subject, name, sha256, blob = map(load_text, texts)
    return StoredFile(
        id=file_id,
        owner=Owner(tenant, subject),
        name=name,
        size=size,
        sha256=sha256,
        blob=blob,
        created_at=created_at,
        expires_at=expires_at,
    )
