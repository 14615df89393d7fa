"""Tables of tool callbacks, egress grants and brokered secrets. Each is removed with its sandbox."""

from __future__ import annotations

from typing import TYPE_CHECKING

from warren.domain.egress import Brokered, Grant
from warren.domain.records import Callbacks
from warren.stores.encoding import dump_json, dump_rule, dump_text, load_mapping, load_rule
from warren.stores.sqlite.table import LIST, MAPPING, PLAIN, TEXT, Codec, Table

if TYPE_CHECKING:
    import sqlite3

_CALLBACKS = Table(
    "callbacks",
    Callbacks,
    {"sandbox_id": TEXT, "url": TEXT, "token": TEXT, "tools": MAPPING, "timeout_s": PLAIN, "port": PLAIN, "peer": TEXT},
)
_RULE = Codec(lambda rule: dump_json(dump_rule(rule)), lambda stored: load_rule(load_mapping(stored)))
_GRANTS = Table("grants", Grant, {"id": TEXT, "sandbox_id": TEXT, "rule": _RULE, "created_at": PLAIN})
_SECRETS = Table(
    "secrets",
    Brokered,
    {"sandbox_id": TEXT, "name": TEXT, "placeholder": TEXT, "hosts": LIST, "value": TEXT, "created_at": PLAIN},
)


def keep_callbacks(connection: sqlite3.Connection, callbacks: Callbacks) -> None:
    """Insert or replace tool callbacks, if their sandbox exists."""
    _CALLBACKS.keep(connection, callbacks, callbacks.sandbox_id)


def get_callbacks(connection: sqlite3.Connection) -> tuple[Callbacks, ...]:
    """Read all tool callbacks."""
    return _CALLBACKS.get_all(connection)


def keep_grant(connection: sqlite3.Connection, grant: Grant) -> None:
    """Insert or replace a grant, if its sandbox exists."""
    _GRANTS.keep(connection, grant, grant.sandbox_id)


def remove_grant(connection: sqlite3.Connection, grant_id: str) -> bool:
    """Delete a grant."""
    return _GRANTS.remove(connection, grant_id)


def get_grants(connection: sqlite3.Connection) -> tuple[Grant, ...]:
    """Read all grants."""
    return _GRANTS.get_all(connection, "ORDER BY created_at, id")


def keep_secret(connection: sqlite3.Connection, secret: Brokered) -> None:
    """Insert or replace a secret, if its sandbox exists."""
    _SECRETS.keep(connection, secret, secret.sandbox_id)


def remove_secret(connection: sqlite3.Connection, sandbox_id: str, name: str) -> bool:
    """Delete a secret."""
    which = (dump_text(sandbox_id), dump_text(name))
    return connection.execute("DELETE FROM secrets WHERE sandbox_id = ? AND name = ?", which).rowcount > 0


def get_secrets(connection: sqlite3.Connection) -> tuple[Brokered, ...]:
    """Read all secrets."""
    return _SECRETS.get_all(connection, "ORDER BY created_at, name")
