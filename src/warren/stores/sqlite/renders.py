"""Table of renders."""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING

from warren.domain.errors import Conflict
from warren.domain.records import Render, RenderStatus
from warren.stores.encoding import dump_text
from warren.stores.sqlite.table import LIST, OWNER, PAIRS, PLAIN, TEXT, TEXT_OR_NULL, Table, word

if TYPE_CHECKING:
    from warren.domain.records import Owner

_TABLE = Table(
    "renders",
    Render,
    {"id": TEXT, **OWNER, "status": word(RenderStatus), "version": TEXT, "name": TEXT}
    | {"created_at": PLAIN, "expires_at": PLAIN, "finished_at": PLAIN, "slides": PLAIN, "degraded": PAIRS}
    | {"file_id": PLAIN, "reason": PLAIN, "error": TEXT_OR_NULL, "missing": PAIRS, "script_errors": LIST},
)


def add(connection: sqlite3.Connection, render: Render) -> None:
    """Insert a render. Raises Conflict."""
    try:
        _TABLE.insert(connection, render)
    except sqlite3.IntegrityError as exc:
        raise Conflict(f"there is a render {render.id} already") from exc


def keep(connection: sqlite3.Connection, render: Render) -> bool:
    """Replace an existing render."""
    return _TABLE.update(connection, render, "id = ?", dump_text(render.id))


def get(connection: sqlite3.Connection, render_id: str) -> Render | None:
    """Read a render."""
    return _TABLE.get(connection, "id = ?", render_id)


def get_all(connection: sqlite3.Connection, owner: Owner) -> tuple[Render, ...]:
    """Read an owner's renders, newest first."""
    rest = "WHERE tenant = ? AND subject = ? ORDER BY created_at DESC, seq DESC"
    return _TABLE.get_all(connection, rest, *map(dump_text, owner))


def get_unfinished(connection: sqlite3.Connection) -> tuple[Render, ...]:
    """Read the unfinished renders."""
    return _TABLE.get_all(connection, "WHERE finished_at IS NULL ORDER BY seq")


def remove(connection: sqlite3.Connection, render_id: str) -> bool:
    """Delete a render."""
    return _TABLE.remove(connection, render_id)


def remove_expired(connection: sqlite3.Connection, *, expired_at: float) -> int:
    """Delete finished renders that are expired."""
    statement = "DELETE FROM renders WHERE expires_at <= ? AND finished_at IS NOT NULL"
    return connection.execute(statement, (expired_at,)).rowcount
