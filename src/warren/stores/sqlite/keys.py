"""Tables of API keys and idempotency keys."""

from __future__ import annotations

import sqlite3
import time
from typing import TYPE_CHECKING

from warren.domain.errors import Conflict
from warren.domain.records import ApiKey, Scope
from warren.stores.encoding import dump_text, load_text
from warren.stores.sqlite.table import LIST, PLAIN, TEXT, Table, word

if TYPE_CHECKING:
    from warren.domain.records import Owner

_TABLE = Table(
    "api_keys",
    ApiKey,
    {"id": TEXT, "name": TEXT, "hash": TEXT, "tenant": TEXT, "subject": TEXT, "scope": word(Scope)}
    | {"created_at": PLAIN, "expires_at": PLAIN, "revoked_at": PLAIN, "networks": LIST},
)
_IN_FORCE = "revoked_at IS NULL AND (expires_at IS NULL OR expires_at > ?)"


def add(connection: sqlite3.Connection, key: ApiKey) -> None:
    """Insert a key. Raises Conflict."""
    if _TABLE.get_all(connection, f"WHERE name = ? AND {_IN_FORCE}", dump_text(key.name), time.time()):
        raise Conflict(f"there is a key {key.name!r} already: revoke it first, or choose another name")
    try:
        _TABLE.insert(connection, key)
    except sqlite3.IntegrityError as exc:
        raise Conflict(f"there is a key {key.id} already, or one of the same secret") from exc


def get(connection: sqlite3.Connection, hash: str) -> ApiKey | None:  # noqa: A002 - the field's name
    """Read the key with a hash."""
    return _TABLE.get(connection, "hash = ?", hash)


def get_all(connection: sqlite3.Connection) -> tuple[ApiKey, ...]:
    """Read all keys, oldest first."""
    return _TABLE.get_all(connection, "ORDER BY created_at, seq")


def revoke(connection: sqlite3.Connection, key_id: str, at: float) -> bool:
    """Revoke a key that is in force."""
    statement = f"UPDATE api_keys SET revoked_at = ? WHERE id = ? AND {_IN_FORCE}"  # noqa: S608 - our own words
    return connection.execute(statement, (at, dump_text(key_id), at)).rowcount > 0


def remember(
    connection: sqlite3.Connection, owner: Owner, key: str, fingerprint: str, target: str, *, ttl_s: float
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
