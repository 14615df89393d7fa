"""Table of sandboxes: rows to values and back, compare-and-set, and quotas."""

from __future__ import annotations

import sqlite3
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Any

from warren.domain.errors import Conflict, InvalidRequest
from warren.domain.lifecycle import Status
from warren.domain.records import Owner, ResourceUse, Sandbox
from warren.domain.values import Limits, Storage
from warren.stores.encoding import dump_egress, dump_json, dump_text, load_egress, load_json, load_mapping, load_text
from warren.stores.quotas import Ceilings, check_use
from warren.stores.sqlite.paging import Filters

if TYPE_CHECKING:
    from collections.abc import Sequence

    from warren.domain.records import Page, SandboxQuery

_COLUMNS = (
    "id", "tenant", "subject", "status", "engine", "image", "image_digest", "limits", "storage", "env", "egress",
    "gpus", "metadata", "session_key", "idle_timeout_s", "max_lifetime_s", "created_at", "active_at", "changed_at",
    "reason", "executions",
)  # fmt: skip
_READ = ", ".join(_COLUMNS)
_WRITTEN = (*_COLUMNS[:-1], "active", "memory_bytes", "disk_bytes", "gpu_count")
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


def add(connection: sqlite3.Connection, sandbox: Sandbox, ceilings: Ceilings = (None, None, None)) -> None:
    """Insert a sandbox. Raises Conflict and ResourceUseExceeded."""
    _write(connection, _INSERT, _dump(sandbox), sandbox)
    _check_quota(connection, sandbox.owner, ceilings)


def swap(
    connection: sqlite3.Connection, sandbox: Sandbox, was: Status, ceilings: Ceilings = (None, None, None)
) -> bool:
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
    check_use(owner, ceilings, partial(holding, connection))


def get(connection: sqlite3.Connection, sandbox_id: str) -> Sandbox | None:
    """Read a sandbox."""
    row = connection.execute(f"SELECT {_READ} FROM sandboxes WHERE id = ?", (dump_text(sandbox_id),)).fetchone()  # noqa: S608 - our own names
    return None if row is None else load(row)


def find(connection: sqlite3.Connection, owner: Owner, session_key: str) -> Sandbox | None:
    """Read the sandbox of a session key."""
    row = connection.execute(
        f"SELECT {_READ} FROM sandboxes WHERE tenant = ? AND subject = ? AND session_key = ?",  # noqa: S608 - our own names
        (*map(dump_text, owner), dump_text(session_key)),
    ).fetchone()
    return None if row is None else load(row)


def touch(connection: sqlite3.Connection, sandbox_id: str, active_at: float) -> None:
    """Note the use of a sandbox."""
    connection.execute(
        "UPDATE sandboxes SET active_at = max(active_at, ?) WHERE id = ?", (active_at, dump_text(sandbox_id))
    )


def remove(connection: sqlite3.Connection, sandbox_id: str) -> None:
    """Delete a sandbox; the schema deletes its executions."""
    connection.execute("DELETE FROM sandboxes WHERE id = ?", (dump_text(sandbox_id),))


def holding(connection: sqlite3.Connection, owner: Owner | None, tenant: str | None = None) -> ResourceUse:
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
    return filters.page(
        connection,
        table="sandboxes",
        columns=_READ,
        order="created_at DESC, seq DESC",
        load=load,
        offset=query.offset,
        limit=query.limit,
    )


def _dump(sandbox: Sandbox) -> tuple[Any, ...]:
    return (
        dump_text(sandbox.id),
        *map(dump_text, sandbox.owner),
        sandbox.status,
        dump_text(sandbox.engine),
        dump_text(sandbox.image),
        dump_text(sandbox.image_digest),
        dump_json(asdict(sandbox.limits)),
        sandbox.storage,
        dump_json(dict(sandbox.env)),
        dump_egress(sandbox.egress),
        dump_json(list(sandbox.gpus)),
        dump_json(dict(sandbox.metadata)),
        None if sandbox.session_key is None else dump_text(sandbox.session_key),
        sandbox.idle_timeout_s,
        sandbox.max_lifetime_s,
        sandbox.created_at,
        sandbox.active_at,
        sandbox.changed_at,
        None if sandbox.reason is None else dump_text(sandbox.reason),
        sandbox.is_active,
        sandbox.limits.memory_bytes,
        sandbox.limits.disk_bytes,
        len(sandbox.gpus),
    )


def load(row: Sequence[Any]) -> Sandbox:
    """Build a sandbox from its columns. Raises ValueError or TypeError for invalid ones."""
    fields = dict(zip(_COLUMNS, row, strict=True))
    for name in ("id", "engine", "image", "image_digest"):
        fields[name] = load_text(fields[name])
    for name in ("session_key", "reason"):
        fields[name] = None if fields[name] is None else load_text(fields[name])
    owner = Owner(load_text(fields.pop("tenant")), load_text(fields.pop("subject")))
    return Sandbox(
        **{
            **fields,
            "owner": owner,
            "status": Status(fields["status"]),
            "storage": Storage(fields["storage"]),
            "limits": _load_limits(fields["limits"]),
            "env": load_mapping(fields["env"]),
            "egress": load_egress(fields["egress"]),
            "gpus": tuple(map(str, load_json(fields["gpus"]))),
            "metadata": load_mapping(fields["metadata"]),
        }
    )


def _load_limits(stored: object) -> Limits:
    try:
        return Limits(**load_mapping(stored))
    except InvalidRequest as exc:
        raise ValueError(str(exc)) from exc
