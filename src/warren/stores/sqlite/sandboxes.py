"""Table of sandboxes: rows to values and back, compare-and-set, and quotas."""

from __future__ import annotations

import sqlite3
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from warren.domain.errors import Conflict, InvalidRequest
from warren.domain.lifecycle import Status
from warren.domain.records import ResourceUse, Sandbox
from warren.domain.values import Limits, Storage
from warren.stores.base import NO_CEILINGS
from warren.stores.encoding import dump_egress, dump_json, dump_text, load_egress, load_json, load_mapping
from warren.stores.quotas import check_use
from warren.stores.sqlite.table import MAPPING, OWNER, PLAIN, TEXT, TEXT_OR_NULL, Codec, Filters, Table, word

if TYPE_CHECKING:
    from collections.abc import Sequence

    from warren.domain.records import Owner, Page, SandboxQuery
    from warren.stores.base import Ceilings


def _load_limits(stored: object) -> Limits:
    try:
        return Limits(**load_mapping(stored))
    except InvalidRequest as exc:
        raise ValueError(str(exc)) from exc


_TABLE = Table(
    "sandboxes",
    Sandbox,
    {
        "id": TEXT,
        **OWNER,
        "status": word(Status),
        "engine": TEXT,
        "reach": TEXT,
        "image": TEXT,
        "image_digest": TEXT,
        "limits": Codec(lambda limits: dump_json(asdict(limits)), _load_limits),
        "storage": word(Storage),
        "env": MAPPING,
        "egress": Codec(dump_egress, load_egress),
        "gpus": Codec(lambda gpus: dump_json(list(gpus)), lambda stored: tuple(map(str, load_json(stored)))),
        "metadata": MAPPING,
        "session_key": TEXT_OR_NULL,
        **dict.fromkeys(("idle_timeout_s", "max_lifetime_s", "created_at", "active_at", "changed_at"), PLAIN),
        "reason": TEXT_OR_NULL,
        "executions": PLAIN,
    },
)
_WRITTEN = (*_TABLE.columns[:-1], "active", "memory_bytes", "disk_bytes", "gpu_count")
"""Not the executions, which triggers count; and the sums of quotas."""
_INSERT = f"INSERT INTO sandboxes ({', '.join(_WRITTEN)}) VALUES ({', '.join('?' * len(_WRITTEN))})"  # noqa: S608 - our own names
_KEPT = {"active_at": "max(active_at, ?)"}
_UPDATE = (
    f"UPDATE sandboxes SET {', '.join(f'{name} = {_KEPT.get(name, chr(63))}' for name in _WRITTEN)} "  # noqa: S608 - our own names
    "WHERE id = ? AND status = ?"
)
_HOLDING = (
    "SELECT count(*), coalesce(sum(active), 0), coalesce(sum(active * memory_bytes), 0), "
    "coalesce(sum(disk_bytes), 0), coalesce(sum(active * gpu_count), 0) FROM sandboxes"
)


def add(connection: sqlite3.Connection, sandbox: Sandbox, ceilings: Ceilings = NO_CEILINGS) -> None:
    """Insert a sandbox. Raises Conflict and ResourceUseExceeded."""
    _write(connection, _INSERT, _dump(sandbox), sandbox)
    _check_quota(connection, sandbox.owner, ceilings)


def swap(connection: sqlite3.Connection, sandbox: Sandbox, ceilings: Ceilings = NO_CEILINGS, *, was: Status) -> bool:
    """Replace a sandbox if its status is `was`. Raises Conflict for a taken session key, and ResourceUseExceeded."""
    if not _write(connection, _UPDATE, (*_dump(sandbox), dump_text(sandbox.id), was), sandbox):
        return False
    _check_quota(connection, sandbox.owner, ceilings)
    return True


def _write(connection: sqlite3.Connection, statement: str, values: Sequence[Any], sandbox: Sandbox) -> int:
    try:
        return connection.execute(statement, values).rowcount
    except sqlite3.IntegrityError as exc:
        if exc.sqlite_errorcode != sqlite3.SQLITE_CONSTRAINT_UNIQUE:
            raise
        if "sandboxes.id" in str(exc):
            raise Conflict(f"there is a sandbox {sandbox.id} already") from exc
        raise Conflict(f"there is a sandbox with session key {sandbox.session_key!r} already") from exc


def _check_quota(connection: sqlite3.Connection, owner: Owner, ceilings: Ceilings) -> None:
    """Check the sums after the change: above a quota, the change is rolled back."""
    check_use(owner, ceilings, lambda owner, tenant: holding(connection, owner, tenant=tenant))


def get(connection: sqlite3.Connection, sandbox_id: str) -> Sandbox | None:
    """Read a sandbox."""
    return _TABLE.get(connection, "id = ?", sandbox_id)


def find(connection: sqlite3.Connection, owner: Owner, session_key: str) -> Sandbox | None:
    """Read the sandbox of a session key."""
    return _TABLE.get(connection, "tenant = ? AND subject = ? AND session_key = ?", *owner, session_key)


def touch(connection: sqlite3.Connection, sandbox_id: str, active_at: float) -> None:
    """Note the use of a sandbox."""
    connection.execute(
        "UPDATE sandboxes SET active_at = max(active_at, ?) WHERE id = ?", (active_at, dump_text(sandbox_id))
    )


def remove(connection: sqlite3.Connection, sandbox_id: str) -> None:
    """Delete a sandbox; the schema deletes its executions."""
    connection.execute("DELETE FROM sandboxes WHERE id = ?", (dump_text(sandbox_id),))


def holding(connection: sqlite3.Connection, owner: Owner | None = None, *, tenant: str | None = None) -> ResourceUse:
    """Sum the resources of an owner, of a tenant, or of all."""
    where: str = ""
    values: tuple[str | bytes, ...] = ()
    if owner is not None:
        where, values = " WHERE tenant = ? AND subject = ?", tuple(map(dump_text, owner))
    elif tenant is not None:
        where, values = " WHERE tenant = ?", (dump_text(tenant),)
    return ResourceUse(*connection.execute(_HOLDING + where, values).fetchone())


def page(connection: sqlite3.Connection, query: SandboxQuery) -> Page[Sandbox]:
    """Read a page, newest first."""
    filters = Filters()
    if query.owner is not None:
        filters.add("tenant = ? AND subject = ?", *map(dump_text, query.owner))
    if query.statuses:
        filters.add(f"status IN ({', '.join('?' * len(query.statuses))})", *query.statuses)
    if query.image is not None:
        filters.add("image = ?", dump_text(query.image))
    if query.session_key is not None:
        filters.add("session_key = ?", dump_text(query.session_key))
    if query.metadata:
        filters.add("holds(metadata, ?)", dump_json(dict(query.metadata)))
    return _TABLE.page(connection, filters, "created_at DESC, seq DESC", offset=query.offset, limit=query.limit)


def _dump(sandbox: Sandbox) -> tuple[Any, ...]:
    limits = sandbox.limits
    sums = (sandbox.is_active, limits.memory_bytes, limits.disk_bytes, len(sandbox.gpus))
    return (*_TABLE.dump(sandbox)[:-1], *sums)
