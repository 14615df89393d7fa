"""Table of skills; their packages are blobs."""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING

from warren.domain.errors import Conflict
from warren.domain.records import Skill
from warren.stores.encoding import dump_text, load_text
from warren.stores.quotas import check_skill_bytes, check_skill_count
from warren.stores.sqlite.table import FLAG, LIST, MAPPING, OWNER, PLAIN, TEXT, TEXT_OR_NULL, Filters, Table

if TYPE_CHECKING:
    from warren.domain.records import Owner, Page, SkillQuery

_TABLE = Table(
    "skills",
    Skill,
    {"id": TEXT, **OWNER, "created_at": PLAIN, "name": TEXT, "description": TEXT, "source": TEXT}
    | {"category": TEXT_OR_NULL, "tags": LIST, "metadata": MAPPING, "server_id": TEXT_OR_NULL, "folder": TEXT}
    | {"blob": TEXT, "sha256": TEXT, "size": PLAIN, "is_shared": FLAG, "changed_at": PLAIN},
)
_FIXED = ("id", "tenant", "subject", "created_at")


def add(connection: sqlite3.Connection, skill: Skill, *, most: int = 0, most_bytes: int = 0) -> None:
    """Insert a skill. Raises Conflict and QuotaExceeded."""
    have, size = _measure(connection, skill.owner)
    check_skill_count(have, most)
    check_skill_bytes(skill, was=0, have=size, most=most_bytes)
    try:
        _TABLE.insert(connection, skill)
    except sqlite3.IntegrityError as exc:
        raise _name_taken(skill) from exc


def get(connection: sqlite3.Connection, skill_id: str) -> Skill | None:
    """Read a skill."""
    return _TABLE.get(connection, "id = ?", skill_id)


def find(connection: sqlite3.Connection, owner: Owner, name: str) -> Skill | None:
    """Read the skill of that name."""
    return _TABLE.get(connection, "tenant = ? AND subject = ? AND name = ?", *owner, name)


def page(connection: sqlite3.Connection, query: SkillQuery) -> Page[Skill]:
    """Read a page of skills."""
    filters = Filters()
    if query.owner is not None:
        filters.add("tenant = ? AND (subject = ? OR is_shared)", *map(dump_text, query.owner))
    return _TABLE.page(connection, filters, "name, seq", offset=query.offset, limit=query.limit)


def swap(connection: sqlite3.Connection, skill: Skill, *, was: Skill, most_bytes: int = 0) -> bool:
    """Update a skill if it is unchanged since `was`. Raises Conflict and QuotaExceeded."""
    check_skill_bytes(skill, was=was.size, have=_measure(connection, skill.owner)[1], most=most_bytes)
    same = (dump_text(skill.id), dump_text(was.blob), was.changed_at)
    try:
        return _TABLE.update(connection, skill, "id = ? AND blob = ? AND changed_at = ?", *same, fixed=_FIXED)
    except sqlite3.IntegrityError as exc:
        raise _name_taken(skill) from exc


def remove(connection: sqlite3.Connection, skill_id: str) -> bool:
    """Delete a skill."""
    return _TABLE.remove(connection, skill_id)


def list_blobs(connection: sqlite3.Connection) -> frozenset[str]:
    """Read the names of all packages."""
    return frozenset(load_text(name) for (name,) in connection.execute("SELECT blob FROM skills").fetchall())


def _measure(connection: sqlite3.Connection, owner: Owner) -> tuple[int, int]:
    """Return how many skills an owner has, and the bytes of their packages."""
    statement = "SELECT count(*), coalesce(sum(size), 0) FROM skills WHERE tenant = ? AND subject = ?"
    count, size = connection.execute(statement, tuple(map(dump_text, owner))).fetchone()
    return count, size


def _name_taken(skill: Skill) -> Conflict:
    return Conflict(f"you have a skill {skill.name!r} already: delete it, or replace it")
