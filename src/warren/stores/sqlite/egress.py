"""Tables of egress grants and brokered secrets."""

from __future__ import annotations

from typing import TYPE_CHECKING

from warren.domain.egress import Brokered, Grant
from warren.stores.encoding import dump_json, dump_rule, dump_text, load_json, load_mapping, load_rule, load_text

if TYPE_CHECKING:
    import sqlite3


def keep_grant(connection: sqlite3.Connection, grant: Grant) -> None:
    """Insert or replace a grant, if its sandbox exists."""
    connection.execute(
        "INSERT OR REPLACE INTO grants (id, sandbox_id, rule, created_at) SELECT ?, id, ?, ? FROM sandboxes "
        "WHERE id = ?",
        (dump_text(grant.id), dump_json(dump_rule(grant.rule)), grant.created_at, dump_text(grant.sandbox_id)),
    )


def remove_grant(connection: sqlite3.Connection, grant_id: str) -> bool:
    """Delete a grant."""
    return connection.execute("DELETE FROM grants WHERE id = ?", (dump_text(grant_id),)).rowcount > 0


def get_grants(connection: sqlite3.Connection) -> tuple[Grant, ...]:
    """Read all grants."""
    rows = connection.execute("SELECT id, sandbox_id, rule, created_at FROM grants ORDER BY created_at, id").fetchall()
    return tuple(
        Grant(
            id=load_text(grant_id),
            sandbox_id=load_text(sandbox_id),
            rule=load_rule(load_mapping(rule)),
            created_at=created_at,
        )
        for grant_id, sandbox_id, rule, created_at in rows
    )


def keep_secret(connection: sqlite3.Connection, secret: Brokered) -> None:
    """Insert or replace a secret, if its sandbox exists."""
    connection.execute(
        "INSERT OR REPLACE INTO secrets (sandbox_id, name, placeholder, hosts, value, created_at) "
        "SELECT id, ?, ?, ?, ?, ? FROM sandboxes WHERE id = ?",
        (
            dump_text(secret.name),
            dump_text(secret.placeholder),
            dump_json(secret.hosts),
            dump_text(secret.value),
            secret.created_at,
            dump_text(secret.sandbox_id),
        ),
    )


def remove_secret(connection: sqlite3.Connection, sandbox_id: str, name: str) -> bool:
    """Delete a secret."""
    which = (dump_text(sandbox_id), dump_text(name))
    return connection.execute("DELETE FROM secrets WHERE sandbox_id = ? AND name = ?", which).rowcount > 0


def get_secrets(connection: sqlite3.Connection) -> tuple[Brokered, ...]:
    """Read all secrets."""
    rows = connection.execute(
        "SELECT sandbox_id, name, placeholder, hosts, value, created_at FROM secrets ORDER BY created_at, name"
    ).fetchall()
    return tuple(
        Brokered(
            sandbox_id=load_text(sandbox_id),
            name=load_text(name),
            placeholder=load_text(placeholder),
            hosts=tuple(load_json(hosts)),
            value=load_text(value),
            created_at=created_at,
        )
        for sandbox_id, name, placeholder, hosts, value, created_at in rows
    )
