"""SqliteStore: the store protocol over one file. `stores.base` has the contract of each method."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from anyio import to_thread

from warren.domain.errors import StoreError
from warren.stores.buckets import Buckets
from warren.stores.sqlite import audit, executions, files, keys, sandboxes
from warren.stores.sqlite import callbacks as callback_rows
from warren.stores.sqlite import egress as egress_rows
from warren.stores.sqlite import renders as render_rows
from warren.stores.sqlite import skills as skill_rows
from warren.stores.sqlite.audit import Appender
from warren.stores.sqlite.checkpoints import Checkpoints
from warren.stores.sqlite.database import Database
from warren.stores.sqlite.reader import Reader
from warren.stores.sqlite.writer import Writer

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import AsyncIterator, Callable

    from warren.domain.egress import Brokered, Grant
    from warren.domain.lifecycle import Status
    from warren.domain.records import (
        ApiKey,
        AuditEntry,
        AuditQuery,
        AuditRow,
        Callbacks,
        Execution,
        Owner,
        Page,
        RateDecision,
        Render,
        ResourceUse,
        Sandbox,
        SandboxQuery,
        Skill,
        SkillQuery,
        StoredFile,
    )

T = TypeVar("T")

CHUNK_ROWS = 500
"""Rows of the chain that are read at once: some milliseconds of work."""
PRUNED_ROWS = 2000
"""Rows that are cut off at once; writers wait meanwhile."""


@dataclass(frozen=True, slots=True)
class _Parts:
    secret: bytes
    reader: Reader
    writer: Writer
    appender: Appender


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

    async def open(self) -> None:
        """Create or migrate the file and start the writer."""
        if self._opened is None:
            self._opened = await to_thread.run_sync(self._open)

    def _open(self) -> _Parts:
        secret = self._database.prepare(*self._bounds)
        appender, checkpoints = Appender(secret), Checkpoints(self._database.writer())
        writer = Writer(
            self._database.writer(),
            self._database.path,
            appender,
            checkpoints,
            lock_wait_s=self._database.lock_wait_s,
        )
        return _Parts(secret, Reader(self._database), writer, appender)

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

    async def add(
        self,
        sandbox: Sandbox,
        *,
        own: ResourceUse | None = None,
        tenant: ResourceUse | None = None,
        everybody: ResourceUse | None = None,
    ) -> None:
        """Add a sandbox."""
        await self._write(partial(sandboxes.add, sandbox=sandbox, ceilings=(own, tenant, everybody)))

    async def get(self, sandbox_id: str) -> Sandbox | None:
        """Return a sandbox."""
        return self._reader.look_up(sandboxes.get, sandbox_id)

    async def find(self, owner: Owner, session_key: str) -> Sandbox | None:
        """Return the sandbox of that session key."""
        return self._reader.look_up(sandboxes.find, owner, session_key)

    async def swap(
        self,
        sandbox: Sandbox,
        *,
        was: Status,
        own: ResourceUse | None = None,
        tenant: ResourceUse | None = None,
        everybody: ResourceUse | None = None,
    ) -> bool:
        """Replace a sandbox if its status still is `was`."""
        ceilings = (own, tenant, everybody)
        return await self._write(partial(sandboxes.swap, sandbox=sandbox, was=was, ceilings=ceilings))

    async def touch(self, sandbox_id: str, active_at: float) -> None:
        """Note the use of a sandbox."""
        await self._write(partial(sandboxes.touch, sandbox_id=sandbox_id, active_at=active_at), in_steps=False)

    async def remove(self, sandbox_id: str) -> None:
        """Remove a sandbox and its executions."""
        await self._write(partial(sandboxes.remove, sandbox_id=sandbox_id), in_steps=False)

    async def list(self, query: SandboxQuery) -> Page[Sandbox]:
        """Return a page of sandboxes."""
        return await self._reader.scan(sandboxes.page, query)

    async def holding(self, owner: Owner | None = None, *, tenant: str | None = None) -> ResourceUse:
        """Sum the resources of an owner, of a tenant, or of all."""
        return await self._reader.scan(sandboxes.holding, owner, tenant)

    async def record(self, execution: Execution) -> None:
        """Add an execution, or its result."""
        await self._write(partial(executions.record, row=executions.dump(execution)), in_steps=False)

    async def execution(self, execution_id: str) -> Execution | None:
        """Return an execution."""
        # WHY: not on the caller's thread, though it is one row: pictures and tables make some megabytes.
        return await self._reader.scan(executions.get, execution_id)

    async def executions(self, sandbox_id: str, *, offset: int = 0, limit: int = 50) -> Page[Execution]:
        """Return a page of a sandbox's executions."""
        return await self._reader.scan(executions.page, sandbox_id, offset, limit)

    async def running(self, sandbox_id: str | None = None) -> tuple[Execution, ...]:
        """Return the executions without a result."""
        return await self._reader.scan(executions.running, sandbox_id)

    async def recorded(self, owner: Owner | None) -> int:
        """Return the bytes of the executions of an owner, or of all."""
        return await self._reader.scan(executions.measure, owner)

    async def append(self, *entries: AuditEntry) -> None:
        """Append to the audit chain."""
        if entries:
            taken = tuple(map(audit.normal, entries))
            await self._write(partial(self._parts.appender.add, entries=taken), in_steps=False)

    async def audit(self, query: AuditQuery) -> Page[AuditRow]:
        """Return a page of the audit record."""
        return await self._reader.scan(audit.page, query)

    async def chain(self, after: int = 0) -> AsyncIterator[AuditRow]:
        """Yield the rows after a number."""
        while rows := await self._reader.scan(_chunk, after):
            for row in rows:
                yield row
            after = rows[-1].seq

    async def verify(self) -> tuple[int, str]:
        """Verify the whole chain."""
        reader, secret = self._reader, self._parts.secret
        verification = await reader.scan(audit.Verification, secret)
        while await reader.scan(verification.step, CHUNK_ROWS):
            pass
        return verification.finish()

    async def audit_start(self) -> tuple[int, str]:
        """Return number and hash of the last audit row that was cut off."""
        return await self._reader.scan(audit.start, self._parts.secret)

    async def prune_audit(self, before: float) -> tuple[int, int, str] | None:
        """Cut off audit rows from before a time."""
        prune = partial(audit.prune, secret=self._parts.secret, before=before, most=PRUNED_ROWS)
        return await self._write(prune, flushed=True)

    async def keep_callbacks(self, callbacks: Callbacks) -> None:
        """Set the tool callbacks of a sandbox."""
        await self._write(partial(callback_rows.keep, callbacks=callbacks))

    async def callbacks(self) -> tuple[Callbacks, ...]:
        """Return the tool callbacks of all sandboxes."""
        return await self._reader.scan(callback_rows.get_all)

    async def keep_grant(self, grant: Grant) -> None:
        """Set a grant."""
        await self._write(partial(egress_rows.keep_grant, grant=grant))

    async def remove_grant(self, grant_id: str) -> bool:
        """Remove a grant."""
        return await self._write(partial(egress_rows.remove_grant, grant_id=grant_id))

    async def grants(self) -> tuple[Grant, ...]:
        """Return the grants of all sandboxes."""
        return await self._reader.scan(egress_rows.get_grants)

    async def keep_secret(self, secret: Brokered) -> None:
        """Set a secret of a sandbox."""
        await self._write(partial(egress_rows.keep_secret, secret=secret), flushed=True)

    async def remove_secret(self, sandbox_id: str, name: str) -> bool:
        """Remove a secret of a sandbox."""
        return await self._write(partial(egress_rows.remove_secret, sandbox_id=sandbox_id, name=name), flushed=True)

    async def secrets(self) -> tuple[Brokered, ...]:
        """Return the secrets of all sandboxes."""
        return await self._reader.scan(egress_rows.get_secrets)

    async def add_key(self, key: ApiKey) -> None:
        """Add a key."""
        await self._write(partial(keys.add, key=key), flushed=True)

    async def key(self, hash: str) -> ApiKey | None:  # noqa: A002 - the field's name
        """Return the key with that hash."""
        return self._reader.look_up(keys.get, hash)

    async def keys(self) -> tuple[ApiKey, ...]:
        """Return all keys."""
        return await self._reader.scan(keys.get_all)

    async def revoke_key(self, key_id: str, at: float) -> bool:
        """Revoke a key."""
        return await self._write(partial(keys.revoke, key_id=key_id, at=at), flushed=True)

    async def remember(self, owner: Owner, key: str, fingerprint: str, target: str, *, ttl_s: float) -> str:
        """Bind an idempotency key to an id."""
        return await self._write(
            partial(keys.remember, owner=owner, key=key, fingerprint=fingerprint, target=target, ttl_s=ttl_s)
        )

    async def forget(self, owner: Owner, key: str, target: str) -> None:
        """Unbind an idempotency key."""
        await self._write(partial(keys.forget, owner=owner, key=key, target=target), in_steps=False)

    async def add_file(self, file: StoredFile, *, own_bytes: int = 0, all_bytes: int = 0) -> None:
        """Add a stored file."""
        await self._write(partial(files.add, file=file, own_bytes=own_bytes, all_bytes=all_bytes))

    async def file(self, file_id: str) -> StoredFile | None:
        """Return a stored file."""
        return self._reader.look_up(files.get, file_id)

    async def files(self, owner: Owner | None) -> tuple[StoredFile, ...]:
        """Return the stored files of an owner, or of all."""
        return await self._reader.scan(files.get_all, owner)

    async def remove_file(self, file_id: str) -> bool:
        """Remove a stored file."""
        return await self._write(partial(files.remove, file_id=file_id), in_steps=False)

    async def remove_files(self, *, expired_at: float, limit: int) -> tuple[StoredFile, ...]:
        """Remove expired stored files."""
        return await self._write(partial(files.remove_expired, at=expired_at, limit=limit))

    async def file_bytes(self, owner: Owner | None) -> int:
        """Return the bytes of the stored files of an owner, or of all."""
        return self._reader.look_up(files.measure, owner)

    async def add_skill(self, skill: Skill, *, most: int = 0, most_bytes: int = 0) -> None:
        """Add a skill."""
        await self._write(partial(skill_rows.add, skill=skill, most=most, most_bytes=most_bytes), flushed=True)

    async def skill(self, skill_id: str) -> Skill | None:
        """Return a skill."""
        return self._reader.look_up(skill_rows.get, skill_id)

    async def find_skill(self, owner: Owner, name: str) -> Skill | None:
        """Return the skill of that name."""
        return self._reader.look_up(skill_rows.find, owner, name)

    async def skills(self, query: SkillQuery) -> Page[Skill]:
        """Return a page of skills."""
        return await self._reader.scan(skill_rows.page, query)

    async def swap_skill(self, skill: Skill, *, was: Skill, most_bytes: int = 0) -> bool:
        """Replace a skill if it still is as in `was`."""
        return await self._write(partial(skill_rows.swap, skill=skill, was=was, most_bytes=most_bytes), flushed=True)

    async def remove_skill(self, skill_id: str) -> bool:
        """Remove a skill."""
        return await self._write(partial(skill_rows.remove, skill_id=skill_id), flushed=True)

    async def skill_blobs(self) -> frozenset[str]:
        """Return the names of all packages."""
        return await self._reader.scan(skill_rows.list_blobs)

    async def add_render(self, render: Render) -> None:
        """Add a render."""
        await self._write(partial(render_rows.add, render=render))

    async def keep_render(self, render: Render) -> bool:
        """Replace an existing render."""
        return await self._write(partial(render_rows.keep, render=render))

    async def render(self, render_id: str) -> Render | None:
        """Return a render."""
        return await self._reader.scan(render_rows.get, render_id)

    async def renders(self, owner: Owner) -> tuple[Render, ...]:
        """Return the renders of an owner."""
        return await self._reader.scan(render_rows.get_all, owner)

    async def unfinished_renders(self) -> tuple[Render, ...]:
        """Return all unfinished renders."""
        return await self._reader.scan(render_rows.get_unfinished)

    async def remove_render(self, render_id: str) -> bool:
        """Remove a render."""
        return await self._write(partial(render_rows.remove, render_id=render_id))

    async def remove_renders(self, *, expired_at: float) -> int:
        """Remove expired renders."""
        return await self._write(partial(render_rows.remove_expired, at=expired_at))

    async def take(self, bucket: str, *, capacity: int, per_s: float, amount: int = 1) -> RateDecision:
        """Take tokens from a bucket."""
        return self._buckets.take(bucket, capacity=capacity, per_s=per_s, amount=amount)

    async def _write(
        self, operation: Callable[[sqlite3.Connection], T], *, in_steps: bool = True, flushed: bool = False
    ) -> T:
        return await self._parts.writer.do(operation, in_steps=in_steps, flushed=flushed)

    @property
    def _reader(self) -> Reader:
        return self._parts.reader

    @property
    def _parts(self) -> _Parts:
        if self._opened is None:
            raise StoreError("the store is not open")
        return self._opened


def _ping(connection: sqlite3.Connection) -> None:
    connection.execute("UPDATE bounds SET kept_executions = kept_executions")


def _chunk(connection: sqlite3.Connection, after: int) -> tuple[AuditRow, ...]:
    return tuple(map(audit.load_row, audit.rows_after(connection, after, CHUNK_ROWS)))
