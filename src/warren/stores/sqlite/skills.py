"""Table of skills; their packages are blobs."""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING, Any

from warren.domain.errors import Conflict
from warren.domain.records import Owner, Skill
from warren.stores.encoding import dump_json, dump_text, load_json, load_mapping, load_text
from warren.stores.quotas import check_skill_bytes, check_skill_count
from warren.stores.sqlite.paging import Filters

if TYPE_CHECKING:
    from collections.abc import Sequence

    from warren.domain.records import Page, SkillQuery

_CHANGING = (
    "name, description, source, category, tags, metadata, server_id, folder, blob, sha256, size, is_shared, changed_at"
)
_COLUMNS = f"id, tenant, subject, created_at, {_CHANGING}"


def add(connection: sqlite3.Connection, skill: Skill, *, most: int, most_bytes: int) -> None:
    """Insert a skill. Raises Conflict and QuotaExceeded."""
    owner = tuple(map(dump_text, skill.owner))
    (have,) = connection.execute("SELECT count(*) FROM skills WHERE tenant = ? AND subject = ?", owner).fetchone()
    check_skill_count(have, most)
    _check_bytes(connection, skill, 0, most_bytes)
    values = (dump_text(skill.id), *owner, skill.created_at, *_dump(skill))
    marks = ", ".join("?" * len(values))
    _insert(connection, f"INSERT INTO skills ({_COLUMNS}) VALUES ({marks})", values, skill)  # noqa: S608 - our own names


def get(connection: sqlite3.Connection, skill_id: str) -> Skill | None:
    """Read a skill."""
    row = connection.execute(f"SELECT {_COLUMNS} FROM skills WHERE id = ?", (dump_text(skill_id),)).fetchone()  # noqa: S608 - our own names
    return None if row is None else _load(row)


def find(connection: sqlite3.Connection, owner: Owner, name: str) -> Skill | None:
    """Read the skill of that name."""
    statement = f"SELECT {_COLUMNS} FROM skills WHERE tenant = ? AND subject = ? AND name = ?"  # noqa: S608 - our own names
    row = connection.execute(statement, tuple(map(dump_text, (*owner, name)))).fetchone()
    return None if row is None else _load(row)


def page(connection: sqlite3.Connection, query: SkillQuery) -> Page[Skill]:
    """Read a page of skills."""
    filters = Filters()
    if query.owner is not None:
        filters.add("tenant = ? AND (subject = ? OR is_shared)", *map(dump_text, query.owner))
    return filters.page(
        connection,
        table="skills",
        columns=_COLUMNS,
        order="name, seq",
        load=_load,
        offset=query.offset,
        limit=query.limit,
    )


def _check_bytes(connection: sqlite3.Connection, skill: Skill, was: int, most: int) -> None:
    """Raise QuotaExceeded when the packages of an owner would exceed the limit, and grow."""
    owner = tuple(map(dump_text, skill.owner))
    statement = "SELECT coalesce(sum(size), 0) FROM skills WHERE tenant = ? AND subject = ?"
    (have,) = connection.execute(statement, owner).fetchone()
    check_skill_bytes(skill, was=was, have=have, most=most)


def swap(connection: sqlite3.Connection, skill: Skill, was: Skill, *, most_bytes: int) -> bool:
    """Update a skill if it is unchanged since `was`. Raises Conflict and QuotaExceeded."""
    _check_bytes(connection, skill, was.size, most_bytes)
    changes = ", ".join(f"{name} = ?" for name in _CHANGING.split(", "))
    statement = f"UPDATE skills SET {changes} WHERE id = ? AND blob = ? AND changed_at = ?"  # noqa: S608 - our own names
    same = (dump_text(skill.id), dump_text(was.blob), was.changed_at)
    return _insert(connection, statement, (*_dump(skill), *same), skill) > 0


def remove(connection: sqlite3.Connection, skill_id: str) -> bool:
    """Delete a skill."""
    return connection.execute("DELETE FROM skills WHERE id = ?", (dump_text(skill_id),)).rowcount > 0


def list_blobs(connection: sqlite3.Connection) -> frozenset[str]:
    """Read the names of all packages."""
    return frozenset(load_text(name) for (name,) in connection.execute("SELECT blob FROM skills").fetchall())


def _insert(connection: sqlite3.Connection, statement: str, values: Sequence[Any], skill: Skill) -> int:
    try:
        return connection.execute(statement, values).rowcount
    except sqlite3.IntegrityError as exc:
        raise Conflict(f"you have a skill {skill.name!r} already: delete it, or replace it") from exc


def _dump(skill: Skill) -> tuple[Any, ...]:
    """Return the values of `_CHANGING`."""
    return (
        *map(dump_text, (skill.name, skill.description, skill.source)),
        None if skill.category is None else dump_text(skill.category),
        dump_json(list(skill.tags)),
        dump_json(dict(skill.metadata)),
        None if skill.server_id is None else dump_text(skill.server_id),
        *map(dump_text, (skill.folder, skill.blob, skill.sha256)),
        skill.size,
        int(skill.is_shared),
        skill.changed_at,
    )


def _load(row: Sequence[Any]) -> Skill:
    skill_id, tenant, subject, created_at, name, description, source, category, tags, metadata, *rest = row
    server_id, folder, blob, sha256, size, is_shared, changed_at = rest
    return Skill(
        id=load_text(skill_id),
        owner=Owner(load_text(tenant), load_text(subject)),
        name=load_text(name),
        description=load_text(description),
        source=load_text(source),
        is_shared=bool(is_shared),
        category=None if category is None else load_text(category),
        tags=tuple(load_json(tags)),
        metadata=load_mapping(metadata),
        server_id=None if server_id is None else load_text(server_id),
        folder=load_text(folder),
        blob=load_text(blob),
        size=size,
        sha256=load_text(sha256),
        created_at=created_at,
        changed_at=changed_at,
    )
