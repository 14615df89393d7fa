"""Tables of API keys and idempotency keys."""

from __future__ import annotations

import sqlite3
import time
from typing import TYPE_CHECKING, Any

from warren.domain.errors import Conflict
from warren.domain.records import ApiKey, Scope
from warren.stores.encoding import dump_text, load_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from warren.domain.records import Owner

_COLUMNS = "id, name, hash, tenant, subject, scope, created_at, expires_at, revoked_at"
_IN_FORCE = "revoked_at IS NULL AND (expires_at IS NULL OR expires_at > ?)"


def add(connection: sqlite3.Connection, key: ApiKey) -> None:
    """Insert a key. Raises Conflict."""
    name = dump_text(key.name)
    named = connection.execute(f"SELECT 1 FROM api_keys WHERE name = ? AND {_IN_FORCE}", (name, time.time()))  # noqa: S608 - our own words
    if named.fetchone():
        raise Conflict(f"there is a key {key.name!r} already: revoke it first, or choose another name")
    texts = map(dump_text, (key.hash, key.tenant, key.subject))
    try:
        connection.execute(
            f"INSERT INTO api_keys ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",  # noqa: S608 - our own names
            (dump_text(key.id), name, *texts, key.scope, key.created_at, key.expires_at, key.revoked_at),
        )
    except sqlite3.IntegrityError as exc:
        raise Conflict(f"there is a key {key.id} already, or one of the same secret") from exc


def get(connection: sqlite3.Connection, hashed: str) -> ApiKey | None:
    """Read the key with a hash."""
    row = connection.execute(f"SELECT {_COLUMNS} FROM api_keys WHERE hash = ?", (dump_text(hashed),)).fetchone()  # noqa: S608 - our own names
    return None if row is None else load(row)


def get_all(connection: sqlite3.Connection) -> tuple[ApiKey, ...]:
    """Read all keys, oldest first."""
    rows = connection.execute(f"SELECT {_COLUMNS} FROM api_keys ORDER BY created_at, seq")  # noqa: S608 - our own names
    return tuple(map(load, rows.fetchall()))


def revoke(connection: sqlite3.Connection, key_id: str, at: float) -> bool:
    """Revoke a key that is in force."""
    statement = f"UPDATE api_keys SET revoked_at = ? WHERE id = ? AND {_IN_FORCE}"  # noqa: S608 - our own words
    return connection.execute(statement, (at, dump_text(key_id), at)).rowcount > 0


def load(row: Sequence[Any]) -> ApiKey:
    """Build a key from its columns. Raises ValueError for invalid ones."""
    *texts, scope, created_at, expires_at, revoked_at = row
    id_, name, hashed, tenant, subject = map(load_text, texts)
    return ApiKey(
        id=id_,
        name=name,
        hash=hashed,
        tenant=tenant,
        subject=subject,
        scope=Scope(scope),
        created_at=created_at,
        expires_at=expires_at,
        revoked_at=revoked_at,
    )


def remember(
    connection: sqlite3.Connection, owner: Owner, key: str, *, fingerprint: str, target: str, ttl_s: float
) -> str:
    """Bind a key to a target unless it is bound already. Raises Conflict for another fingerprint."""
    now = time.time()
    connection.execute("DELETE FROM idempotency WHERE expires_at <= ?", (now,))
    named = (*map(dump_text, owner), dump_text(key))
    row = connection.execute(
        "SELECT fingerprint, target FROM idempotency WHERE tenant = ? AND subject = ? AND key = ?", named
    ).fetchone()
    if row is None:
        values = (*named, dump_text(fingerprint), dump_text(target), now + ttl_s)
        connection.execute("INSERT INTO idempotency VALUES (?, ?, ?, ?, ?, ?)", values)
        return target
    if load_text(row[0]) != fingerprint:
        raise Conflict(f"the idempotency key {key!r} was used for another request: use a new one")
    return load_text(row[1])


def forget(connection: sqlite3.Connection, owner: Owner, key: str, target: str) -> None:
    """Unbind a key from a target."""
    connection.execute(
        "DELETE FROM idempotency WHERE tenant = ? AND subject = ? AND key = ? AND target = ?",
        tuple(map(dump_text, (*owner, key, target))),
    )
