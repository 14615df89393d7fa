"""Table of tool callbacks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from warren.domain.records import Callbacks
from warren.stores.encoding import dump_json, dump_text, load_mapping, load_text

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Sequence

_COLUMNS = "sandbox_id, url, token, tools, timeout_s, port, peer"


def keep(connection: sqlite3.Connection, callbacks: Callbacks) -> None:
    """Insert or replace a row, if the sandbox exists."""
    texts = map(dump_text, (callbacks.url, callbacks.token))
    sandbox_id = dump_text(callbacks.sandbox_id)
    connection.execute(
        f"INSERT OR REPLACE INTO callbacks ({_COLUMNS}) "  # noqa: S608 - our own names
        "SELECT id, ?, ?, ?, ?, ?, ? FROM sandboxes WHERE id = ?",
        (*texts, dump_json(dict(callbacks.tools)), callbacks.timeout_s, callbacks.port, callbacks.peer, sandbox_id),
    )


def get_all(connection: sqlite3.Connection) -> tuple[Callbacks, ...]:
    """Read all rows."""
    return tuple(map(_load, connection.execute(f"SELECT {_COLUMNS} FROM callbacks").fetchall()))  # noqa: S608 - our own names


def _load(row: Sequence[Any]) -> Callbacks:
    sandbox_id, url, token, tools, timeout_s, port, peer = row
    return Callbacks(
        sandbox_id=load_text(sandbox_id),
        url=load_text(url),
        token=load_text(token),
        tools=load_mapping(tools),
        timeout_s=timeout_s,
        port=port,
        peer=load_text(peer),
    )
