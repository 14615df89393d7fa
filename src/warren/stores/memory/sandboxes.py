"""Sandboxes and their executions in memory."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from warren.domain.errors import Conflict, QuotaExceeded
from warren.domain.records import ResourceUse
from warren.stores.base import NO_CEILINGS
from warren.stores.encoding import dump_result, dump_text, load_result
from warren.stores.memory.tables import OpenTables, first, newest, oldest, page
from warren.stores.quotas import check_use

if TYPE_CHECKING:
    from collections.abc import Iterable

    from warren.domain.lifecycle import Status
    from warren.domain.records import Execution, Owner, Page, Sandbox, SandboxQuery
    from warren.stores.base import Ceilings
    from warren.stores.memory.tables import Tables

RECORD_BYTES = 512
"""What an execution counts for besides its texts."""


class SandboxRecords(OpenTables):
    """The methods of the store that are about sandboxes and executions."""

    def __init__(self, tables: Tables | None = None, *, kept_executions: int = 1000, own_bytes: int = 0) -> None:
        """Set how many executions of each sandbox are kept, and how many bytes of an owner's; 0 bytes is no bound."""
        super().__init__(tables)
        self._bounds = (kept_executions, own_bytes)

    async def add(self, sandbox: Sandbox, ceilings: Ceilings = NO_CEILINGS) -> None:
        if sandbox.id in self._tables.sandboxes:
            raise Conflict(f"there is a sandbox {sandbox.id} already")
        self._write(sandbox, ceilings)

    async def get(self, sandbox_id: str) -> Sandbox | None:
        return self._tables.sandboxes.get(sandbox_id)

    async def find(self, owner: Owner, session_key: str) -> Sandbox | None:
        return first(each for each in self._owned(owner) if each.session_key == session_key)

    async def swap(self, sandbox: Sandbox, ceilings: Ceilings = NO_CEILINGS, *, was: Status) -> bool:
        now = self._tables.sandboxes.get(sandbox.id)
        if now is None or now.status != was:
            return False
        active_at = max(now.active_at, sandbox.active_at)
        self._write(replace(sandbox, active_at=active_at, executions=now.executions), ceilings)
        return True

    def _write(self, sandbox: Sandbox, ceilings: Ceilings) -> None:
        rows = self._tables.sandboxes
        was = rows.get(sandbox.id)
        if sandbox.session_key is not None and any(
            each.session_key == sandbox.session_key and each.id != sandbox.id for each in self._owned(sandbox.owner)
        ):
            raise Conflict(f"there is a sandbox with session key {sandbox.session_key!r} already")
        rows[sandbox.id] = sandbox
        try:
            check_use(sandbox.owner, ceilings, self._use)
        except QuotaExceeded:
            if was is None:
                del rows[sandbox.id]
            else:
                rows[sandbox.id] = was
            raise

    async def touch(self, sandbox_id: str, active_at: float) -> None:
        self._change(sandbox_id, active_at, executions=0)

    def _change(self, sandbox_id: str, active_at: float, *, executions: int) -> None:
        now = self._tables.sandboxes.get(sandbox_id)
        if now is not None:
            self._tables.sandboxes[sandbox_id] = replace(
                now, active_at=max(now.active_at, active_at), executions=now.executions + executions
            )

    async def remove(self, sandbox_id: str) -> None:
        tables = self._tables
        tables.sandboxes.pop(sandbox_id, None)
        tables.executions.pop(sandbox_id, None)
        tables.callbacks.pop(sandbox_id, None)
        for grant in [each for each in tables.grants.values() if each.sandbox_id == sandbox_id]:
            del tables.grants[grant.id]
        for name in [each for each in tables.secrets if each[0] == sandbox_id]:
            del tables.secrets[name]

    async def list(self, query: SandboxQuery) -> Page[Sandbox]:
        rows = self._tables.sandboxes.values() if query.owner is None else self._owned(query.owner)
        found = [
            each
            for each in rows
            if (not query.statuses or each.status in query.statuses)
            and query.image in {None, each.image}
            and query.session_key in {None, each.session_key}
            and query.metadata.items() <= each.metadata.items()
        ]
        return page(newest(found, "created_at"), query.offset, query.limit)

    async def holding(self, owner: Owner | None = None, *, tenant: str | None = None) -> ResourceUse:
        return self._use(owner, tenant)

    def _use(self, owner: Owner | None, tenant: str | None) -> ResourceUse:
        held = [
            each
            for each in self._tables.sandboxes.values()
            if owner in {None, each.owner} and (owner is not None or tenant in {None, each.owner.tenant})
        ]
        active = [each for each in held if each.is_active]
        return ResourceUse(
            len(held),
            len(active),
            sum(each.limits.memory_bytes for each in active),
            sum(each.limits.disk_bytes for each in held),
            sum(len(each.gpus) for each in active),
        )

    def _owned(self, owner: Owner) -> Iterable[Sandbox]:
        return (each for each in self._tables.sandboxes.values() if each.owner == owner)

    async def record(self, execution: Execution) -> None:
        tables, sandbox_id = self._tables, execution.sandbox_id
        if sandbox_id not in tables.sandboxes:
            return
        rows = tables.executions[sandbox_id]
        known = rows.get(execution.id)
        if known is None:
            self._change(sandbox_id, execution.started_at, executions=1)
            rows[execution.id] = weighed(execution)
        elif known[0].result is None and execution.result is not None:
            ended = replace(known[0], finished_at=execution.finished_at, result=execution.result)
            rows[execution.id] = weighed(ended)
        else:
            return
        self._forget_oldest(execution)

    def _forget_oldest(self, newest: Execution) -> None:
        kept, own_bytes = self._bounds
        rows = self._tables.executions[newest.sandbox_id]
        for each in ended(rows.values())[: max(0, len(rows) - kept)]:
            del rows[each.id]
        if not own_bytes:
            return
        too_much = self._recorded(newest.owner) - own_bytes
        owned = [row for each in self._owned(newest.owner) for row in self._tables.executions[each.id].values()]
        for each in ended(owned):
            if too_much <= 0:
                break
            if each.id != newest.id:
                too_much -= self._tables.executions[each.sandbox_id].pop(each.id)[1]

    async def execution(self, execution_id: str) -> Execution | None:
        found = first(rows[execution_id] for rows in self._tables.executions.values() if execution_id in rows)
        return None if found is None else found[0]

    async def executions(self, sandbox_id: str, *, offset: int = 0, limit: int = 50) -> Page[Execution]:
        rows = self._tables.executions.get(sandbox_id, {})
        return page(newest([execution for execution, _ in rows.values()], "started_at"), offset, limit)

    async def running(self, sandbox_id: str | None = None) -> tuple[Execution, ...]:
        found = [
            execution
            for each, rows in self._tables.executions.items()
            if sandbox_id in {None, each}
            for execution, _ in rows.values()
            if execution.result is None
        ]
        return oldest(found, "started_at")

    async def recorded(self, owner: Owner | None) -> int:
        return self._recorded(owner)

    def _recorded(self, owner: Owner | None) -> int:
        rows = (row for each in self._tables.executions.values() for row in each.values())
        return sum(size for execution, size in rows if owner in {None, execution.owner})


def weighed(execution: Execution) -> tuple[Execution, int]:
    """Return an execution as it is kept, and how many bytes it takes: 0 while it runs."""
    result = execution.result
    if result is None:
        return execution, 0
    # WHY: encoded and decoded, so that it holds what a record of any store holds, and no file that was collected.
    encoded = dump_result(result)
    kept = replace(execution, result=load_result(encoded, result.stdout, result.stderr))
    texts = (dump_text(execution.code), encoded, result.stdout, result.stderr)
    return kept, RECORD_BYTES + sum(len(each.encode() if isinstance(each, str) else each) for each in texts)


def ended(rows: Iterable[tuple[Execution, int]]) -> list[Execution]:
    """Return the ended ones, in the order in which they ended."""
    ended = [execution for execution, _ in rows if execution.result is not None]
    return sorted(ended, key=lambda each: each.finished_at or 0.0)
