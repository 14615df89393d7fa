"""SqliteStore: the store protocol over one file. `stores.base` has the contract of each method."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

from anyio import to_thread

from warren.domain.errors import StoreError
from warren.stores.quotas import Buckets
from warren.stores.sqlite import audit as audit_rows
from warren.stores.sqlite import egress as egress_rows
from warren.stores.sqlite import executions as execution_rows
from warren.stores.sqlite import files as file_rows
from warren.stores.sqlite import keys as key_rows
from warren.stores.sqlite import renders as render_rows
from warren.stores.sqlite import sandboxes as sandbox_rows
from warren.stores.sqlite import skills as skill_rows
from warren.stores.sqlite.audit import Appender
from warren.stores.sqlite.database import Database
from warren.stores.sqlite.reader import Reader
from warren.stores.sqlite.writer import Checkpoints, Writer

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import AsyncIterator, Callable, Coroutine

    from warren.domain.records import AuditEntry, AuditRow, Execution, RateDecision

P = ParamSpec("P")
T = TypeVar("T")

if TYPE_CHECKING:
    _Operation = Callable[Concatenate[sqlite3.Connection, P], T]
    _Method = Callable[Concatenate["SqliteStore", P], Coroutine[Any, Any, T]]

CHUNK_ROWS = 500
"""Rows of the chain that are read at once: some milliseconds of work."""
PRUNED_ROWS = 2000
"""Rows that are cut off at once; writers wait meanwhile."""


@dataclass(frozen=True, slots=True)
class _Parts:
    secret: bytes
    identity: str
    reader: Reader
    writer: Writer
    appender: Appender


def _look_up(read: _Operation[P, T]) -> _Method[P, T]:
    """Make a method that reads on the caller's thread: for a row by its key."""

    async def method(self: SqliteStore, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._parts.reader.look_up(read, *args, **kwargs)

    return method


def _scan(read: _Operation[P, T]) -> _Method[P, T]:
    """Make a method that reads on another thread."""

    async def method(self: SqliteStore, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._parts.reader.scan(read, *args, **kwargs)

    return method


def _write(write: _Operation[P, T], *, in_steps: bool = True, flushed: bool = False) -> _Method[P, T]:
    """Make a method that writes, as `Writer.do` does."""

    async def method(self: SqliteStore, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._parts.writer.do(
            lambda connection: write(connection, *args, **kwargs), in_steps=in_steps, flushed=flushed
        )

    return method


class SqliteStore:
    """Keeps everything in `<data_dir>/warren.db`. Several processes may open it."""

    def __init__(
        self,
        data_dir: str | os.PathLike[str],
        *,
        kept_executions: int | None = None,
        own_bytes: int | None = None,
        lock_wait_s: float = 10.0,
        must_exist: bool = False,
    ) -> None:
        """Set the bounds of what is kept, for every process; None keeps the bounds of the file.

        They are the executions of each sandbox, 1000 in a new file, and the bytes of each owner's, where 0, as in a new
        file, is no bound; the oldest go first. `lock_wait_s` is how long another process may write. A file that must
        exist is not created: a reader would take an empty one for the truth.
        """
        self._database = Database(os.path.abspath(data_dir), lock_wait_s, must_exist=must_exist)
        self._bounds = (kept_executions, own_bytes)
        self._buckets = Buckets()
        self._opened: _Parts | None = None

    @property
    def identity(self) -> str:
        """The random id of the file."""
        return self._parts.identity

    async def open(self) -> None:
        """Create or migrate the file and start the writer."""
        if self._opened is None:
            self._opened = await to_thread.run_sync(self._open)

    def _open(self) -> _Parts:
        secret, identity = self._database.prepare(*self._bounds)
        appender, checkpoints = Appender(secret), Checkpoints(self._database.writer())
        writer = Writer(
            self._database.writer(), self._database.path, appender, checkpoints, lock_wait_s=self._database.lock_wait_s
        )
        return _Parts(secret, identity, Reader(self._database), writer, appender)

    async def close(self) -> None:
        """Finish pending writes, and close the file."""
        if self._opened is not None:
            parts, self._opened = self._opened, None
            # WHY: the last connection to close checkpoints the log, so it must be able to write.
            await parts.reader.close()
            await parts.writer.close()

    async def ping(self) -> None:
        """Write. The only write that does not outlive a cancelled caller: it measures how long a write takes."""
        self._database.check_in_place()
        await self._parts.writer.ask(_ping, in_steps=False)

    get = _look_up(sandbox_rows.get)
    find = _look_up(sandbox_rows.find)
    list = _scan(sandbox_rows.page)
    holding = _scan(sandbox_rows.holding)
    add = _write(sandbox_rows.add)
    swap = _write(sandbox_rows.swap)
    touch = _write(sandbox_rows.touch, in_steps=False)
    remove = _write(sandbox_rows.remove, in_steps=False)

    # WHY not on the caller's thread, though it is one row: pictures and tables make some megabytes.
    execution = _scan(execution_rows.get)
    executions = _scan(execution_rows.page)
    running = _scan(execution_rows.running)
    recorded = _scan(execution_rows.measure)

    async def record(self, execution: Execution) -> None:
        """Add an execution, or its result."""
        row = execution_rows.dump(execution)
        await self._parts.writer.do(partial(execution_rows.record, row=row), in_steps=False)

    audit = _scan(audit_rows.page)

    async def append(self, *entries: AuditEntry) -> None:
        """Append to the audit chain."""
        if entries:
            taken = tuple(map(audit_rows.normal, entries))
            await self._parts.writer.do(partial(self._parts.appender.add, entries=taken), in_steps=False)

    async def chain(self, after: int = 0) -> AsyncIterator[AuditRow]:
        """Yield the rows after a number."""
        while rows := await self._parts.reader.scan(_chunk, after):
            for row in rows:
                yield row
            after = rows[-1].seq

    async def verify(self) -> tuple[int, str]:
        """Verify the whole chain."""
        reader, secret = self._parts.reader, self._parts.secret
        verification = await reader.scan(audit_rows.Verification, secret)
        while await reader.scan(verification.step, CHUNK_ROWS):
            pass
        return verification.finish()

    async def audit_start(self) -> tuple[int, str]:
        """Return number and hash of the last audit row that was cut off."""
        return await self._parts.reader.scan(audit_rows.start, self._parts.secret)

    async def prune_audit(self, before: float) -> tuple[int, int, str] | None:
        """Cut off audit rows from before a time."""
        prune = partial(audit_rows.prune, secret=self._parts.secret, before=before, most=PRUNED_ROWS)
        return await self._parts.writer.do(prune, flushed=True)

    callbacks = _scan(egress_rows.get_callbacks)
    keep_callbacks = _write(egress_rows.keep_callbacks)
    grants = _scan(egress_rows.get_grants)
    keep_grant = _write(egress_rows.keep_grant)
    remove_grant = _write(egress_rows.remove_grant)
    secrets = _scan(egress_rows.get_secrets)
    keep_secret = _write(egress_rows.keep_secret, flushed=True)
    remove_secret = _write(egress_rows.remove_secret, flushed=True)

    key = _look_up(key_rows.get)
    keys = _scan(key_rows.get_all)
    add_key = _write(key_rows.add, flushed=True)
    revoke_key = _write(key_rows.revoke, flushed=True)
    remember = _write(key_rows.remember)
    forget = _write(key_rows.forget, in_steps=False)

    file = _look_up(file_rows.get)
    file_bytes = _look_up(file_rows.measure)
    files = _scan(file_rows.get_all)
    add_file = _write(file_rows.add)
    remove_file = _write(file_rows.remove, in_steps=False)
    remove_files = _write(file_rows.remove_expired)

    skill = _look_up(skill_rows.get)
    find_skill = _look_up(skill_rows.find)
    skills = _scan(skill_rows.page)
    skill_blobs = _scan(skill_rows.list_blobs)
    add_skill = _write(skill_rows.add, flushed=True)
    swap_skill = _write(skill_rows.swap, flushed=True)
    remove_skill = _write(skill_rows.remove, flushed=True)

    render = _scan(render_rows.get)
    renders = _scan(render_rows.get_all)
    unfinished_renders = _scan(render_rows.get_unfinished)
    add_render = _write(render_rows.add)
    keep_render = _write(render_rows.keep)
    remove_render = _write(render_rows.remove)
    remove_renders = _write(render_rows.remove_expired)

    async def take(self, bucket: str, *, capacity: int, per_s: float, amount: int = 1) -> RateDecision:
        """Take tokens from a bucket."""
        return self._buckets.take(bucket, capacity=capacity, per_s=per_s, amount=amount)

    @property
    def _parts(self) -> _Parts:
        if self._opened is None:
            raise StoreError("the store is not open")
        return self._opened


def _ping(connection: sqlite3.Connection) -> None:
    connection.execute("UPDATE bounds SET kept_executions = kept_executions")


def _chunk(connection: sqlite3.Connection, after: int) -> tuple[AuditRow, ...]:
    return tuple(map(audit_rows.load_row, audit_rows.rows_after(connection, after, CHUNK_ROWS)))
