"""Table of renders."""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING, Any

from warren.domain.errors import Conflict
from warren.domain.records import Owner, Render, RenderStatus
from warren.stores.encoding import dump_json, dump_text, load_json, load_text

if TYPE_CHECKING:
    from collections.abc import Sequence

_COLUMNS = (
    "id, tenant, subject, status, version, name, created_at, expires_at, finished_at, slides, degraded, file_id, "
    "reason, error, missing, script_errors"
)


def add(connection: sqlite3.Connection, render: Render) -> None:
    """Insert a render. Raises Conflict."""
    marks = ", ".join("?" * len(_COLUMNS.split(", ")))
    try:
        connection.execute(f"INSERT INTO renders ({_COLUMNS}) VALUES ({marks})", _dump(render))  # noqa: S608 - our own names
    except sqlite3.IntegrityError as exc:
        raise Conflict(f"there is a render {render.id} already") from exc


def keep(connection: sqlite3.Connection, render: Render) -> bool:
    """Replace an existing render."""
    columns = ", ".join(f"{name} = ?" for name in _COLUMNS.split(", "))
    statement = f"UPDATE renders SET {columns} WHERE id = ?"  # noqa: S608 - our own names
    return connection.execute(statement, (*_dump(render), dump_text(render.id))).rowcount > 0


def get(connection: sqlite3.Connection, render_id: str) -> Render | None:
    """Read a render."""
    row = connection.execute(f"SELECT {_COLUMNS} FROM renders WHERE id = ?", (dump_text(render_id),)).fetchone()  # noqa: S608 - our own names
    return None if row is None else _load(row)


def get_all(connection: sqlite3.Connection, owner: Owner) -> tuple[Render, ...]:
    """Read an owner's renders, newest first."""
    statement = f"SELECT {_COLUMNS} FROM renders WHERE tenant = ? AND subject = ? ORDER BY created_at DESC, seq DESC"  # noqa: S608 - our own names
    return tuple(map(_load, connection.execute(statement, tuple(map(dump_text, owner))).fetchall()))


def get_unfinished(connection: sqlite3.Connection) -> tuple[Render, ...]:
    """Read the unfinished renders."""
    statement = f"SELECT {_COLUMNS} FROM renders WHERE finished_at IS NULL ORDER BY seq"  # noqa: S608 - our own names
    return tuple(map(_load, connection.execute(statement).fetchall()))


def remove(connection: sqlite3.Connection, render_id: str) -> bool:
    """Delete a render."""
    return connection.execute("DELETE FROM renders WHERE id = ?", (dump_text(render_id),)).rowcount > 0


def remove_expired(connection: sqlite3.Connection, at: float) -> int:
    """Delete finished renders that are expired."""
    statement = "DELETE FROM renders WHERE expires_at <= ? AND finished_at IS NOT NULL"
    return connection.execute(statement, (at,)).rowcount


def _dump(render: Render) -> tuple[Any, ...]:
    return (
        *map(dump_text, (render.id, *render.owner, render.status.value, render.version, render.name)),
        render.created_at,
        render.expires_at,
        render.finished_at,
        render.slides,
        dump_json(render.degraded),
        render.file_id,
        render.reason,
        None if render.error is None else dump_text(render.error),
        dump_json(render.missing),
        dump_json(render.script_errors),
    )


def _load(row: Sequence[Any]) -> Render:
    *texts, created_at, expires_at, finished_at, slides, degraded, file_id, reason, error, missing, script_errors = row
    render_id, tenant, subject, status, version, name = map(load_text, texts)
    return Render(
        id=render_id,
        owner=Owner(tenant, subject),
        status=RenderStatus(status),
        version=version,
        name=name,
        created_at=created_at,
        expires_at=expires_at,
        finished_at=finished_at,
        slides=slides,
        degraded=tuple((number, why) for number, why in load_json(degraded)),
        file_id=file_id,
        reason=reason,
        error=None if error is None else load_text(error),
        missing=tuple((address, count) for address, count in load_json(missing)),
        script_errors=tuple(load_json(script_errors)),
    )
