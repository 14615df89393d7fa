"""Table of executions: recorded when they start and when they end; only the newest of a sandbox are kept."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from warren.domain.records import Execution
from warren.domain.values import ExecKind
from warren.stores.encoding import dump_result, dump_text, load_result
from warren.stores.sqlite.table import FLAG, OWNER, PLAIN, TEXT, TEXT_OR_NULL, Filters, Table, word

if TYPE_CHECKING:
    import sqlite3

    from warren.domain.records import Owner, Page


def _build(*, result: object, stdout: bytes, stderr: bytes, **fields: Any) -> Execution:
    return Execution(result=None if result is None else load_result(result, stdout, stderr), **fields)


_TABLE = Table(
    "executions",
    _build,
    {"id": TEXT, "sandbox_id": TEXT, **OWNER, "kind": word(ExecKind), "kernel": TEXT_OR_NULL, "code": TEXT}
    | {"background": FLAG, "request_id": TEXT, "started_at": PLAIN, "finished_at": PLAIN}
    | {"result": PLAIN, "stdout": PLAIN, "stderr": PLAIN},
)
_RECORD = (
    f"INSERT INTO executions ({', '.join(_TABLE.columns)}, size) SELECT {', '.join('?' * 15)} "  # noqa: S608 - our own names
    "WHERE EXISTS (SELECT 1 FROM sandboxes WHERE id = ?) "
    "ON CONFLICT (id) DO UPDATE SET finished_at = excluded.finished_at, result = excluded.result, "
    "stdout = excluded.stdout, stderr = excluded.stderr, size = excluded.size "
    "WHERE result IS NULL AND excluded.result IS NOT NULL"
)
OVERHEAD = 512
"""Approximate bytes of a record besides its texts; the schema uses the same number."""


def dump(execution: Execution) -> tuple[Any, ...]:
    """Build the columns of an execution, and their size."""
    result = execution.result
    row: tuple[Any, ...] = (
        dump_text(execution.id),
        dump_text(execution.sandbox_id),
        *map(dump_text, execution.owner),
        execution.kind,
        None if execution.kernel is None else dump_text(execution.kernel),
        dump_text(execution.code),
        execution.background,
        dump_text(execution.request_id),
        execution.started_at,
        execution.finished_at,
        None if result is None else dump_result(result),
        None if result is None else result.stdout,
        None if result is None else result.stderr,
    )
    # Running executions are few, and counted when they end: a start must be cheap.
    return (*row, 0 if result is None else OVERHEAD + sum(map(_measure, (row[6], *row[-3:]))))


def _measure(value: str | bytes) -> int:
    return len(value if isinstance(value, bytes) or value.isascii() else value.encode())


def record(connection: sqlite3.Connection, row: tuple[Any, ...]) -> None:
    """Insert an execution, or add its result if it has none. One statement: triggers count, and remove the oldest."""
    connection.execute(_RECORD, (*row, row[1]))


def bound(connection: sqlite3.Connection, kept: int | None, own_bytes: int | None) -> None:
    """Set how many executions of a sandbox, and bytes of an owner's, are kept, from the next one on."""
    for name, value in (("kept_executions", kept), ("own_bytes", own_bytes)):
        if value is not None:
            connection.execute(f"UPDATE bounds SET {name} = ? WHERE {name} <> ?", (value, value))  # noqa: S608 - our own names


def measure(connection: sqlite3.Connection, owner: Owner | None) -> int:
    """Sum the bytes of an owner's executions, or of all."""
    condition, values = (
        ("", ()) if owner is None else (" WHERE tenant = ? AND subject = ?", tuple(map(dump_text, owner)))
    )
    (size,) = connection.execute(f"SELECT coalesce(sum(bytes), 0) FROM recorded{condition}", values).fetchone()  # noqa: S608 - our own names
    return int(size)


def get(connection: sqlite3.Connection, execution_id: str) -> Execution | None:
    """Read an execution."""
    return _TABLE.get(connection, "id = ?", execution_id)


def page(connection: sqlite3.Connection, sandbox_id: str, *, offset: int = 0, limit: int = 50) -> Page[Execution]:
    """Read a page of a sandbox's executions, newest first."""
    filters = Filters()
    filters.add("sandbox_id = ?", dump_text(sandbox_id))
    return _TABLE.page(connection, filters, "started_at DESC, seq DESC", offset=offset, limit=limit)


def running(connection: sqlite3.Connection, sandbox_id: str | None = None) -> tuple[Execution, ...]:
    """Read the executions without a result, oldest first."""
    condition, values = ("", ()) if sandbox_id is None else ("AND sandbox_id = ? ", (dump_text(sandbox_id),))
    return _TABLE.get_all(connection, f"WHERE result IS NULL {condition}ORDER BY started_at, seq", *values)
