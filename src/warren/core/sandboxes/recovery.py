"""Recovery: after a restart, the records of the store and the sandboxes of the engine are reconciled.

1. The record of a sandbox that another engine, or another data folder, has is left as it is.
2. A sandbox without a record is destroyed only if it was made for our store. Of those from earlier versions, which name
   no store, persistent ones stay: their store may be elsewhere.
"""

from __future__ import annotations

import logging
from collections import Counter
from typing import TYPE_CHECKING

import anyio

from warren.core.sandboxes.live import LiveSandbox
from warren.domain.errors import Error, SandboxLost
from warren.domain.lifecycle import AFTER_CRASH, Status
from warren.domain.records import SandboxQuery
from warren.domain.values import Storage

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from warren.core.sandboxes.transitions import SandboxTransitions
    from warren.domain.records import Sandbox
    from warren.domain.values import Handle
    from warren.engines.base import Engine
    from warren.stores.base import Store

    Adopt = Callable[[LiveSandbox], Awaitable[None]]

AT_ONCE = 16
_PAGE = 500
_PREFIX = "sbx_"
"""Of sandboxes of the service. Others in the same data folder belong to commands that run now."""
_NAMED = 5
_REMEDY = "if no service uses them: warren stop, warren stop-engine --sandboxes, and remove their folders"

_log = logging.getLogger(__name__)


async def recover(transitions: SandboxTransitions, engine: Engine, store: Store, adopt: Adopt) -> dict[str, int]:
    """Make every record true again, and hand each running sandbox to `adopt`. Returns counts by outcome.

    A sandbox that cannot be recovered now is logged and keeps its record: the reaper tries again.
    """
    handles = {handle.sandbox_id: handle async for handle in engine.handles()}
    rows = await _load_all(store)
    strays = [handles[each] for each in handles.keys() - {row.id for row in rows} if each.startswith(_PREFIX)]
    recovery = _Recovery(transitions, engine, adopt)
    async with anyio.create_task_group() as tasks:
        for sandbox in filter(transitions.is_ours, rows):
            tasks.start_soon(recovery.recover, sandbox, sandbox.id in handles)
        for stray in strays:
            if _is_left_over(stray, store):
                tasks.start_soon(recovery.remove_stray, stray)
    foreign = [row for row in rows if not transitions.is_ours(row)]
    kept = [stray for stray in strays if not _is_left_over(stray, store)]
    _log_kept(foreign, kept)
    return dict(recovery.counts + Counter(foreign=len(foreign), strays_skipped=len(kept)))


def _is_left_over(stray: Handle, store: Store) -> bool:
    """Whether a sandbox without a record is one that our store does not need any more: rule 2."""
    if stray.store_id:
        return stray.store_id == store.identity
    return stray.storage is not Storage.PERSISTENT


def _log_kept(foreign: list[Sandbox], strays: list[Handle]) -> None:
    if foreign:
        engines = {f"{row.engine} (reach {row.reach})" if row.reach else row.engine for row in foreign}
        _log.warning("recovery.records_skipped", extra={"count": len(foreign), "engines": _name(engines)})
    if strays:
        ids = _name(stray.sandbox_id for stray in strays)
        _log.warning("recovery.strays_skipped", extra={"count": len(strays), "ids": ids, "remedy": _REMEDY})


def _name(found: Iterable[str]) -> str:
    """Name the first of them: a log has short fields."""
    first = sorted(found)
    return ", ".join(first[:_NAMED]) + (", …" if len(first) > _NAMED else "")


async def _load_all(store: Store) -> list[Sandbox]:
    rows: list[Sandbox] = []
    while True:
        page = await store.list(SandboxQuery(offset=len(rows), limit=_PAGE))
        rows += page.items
        if not page.items:
            return rows


class _Recovery:
    def __init__(self, transitions: SandboxTransitions, engine: Engine, adopt: Adopt) -> None:
        self._transitions = transitions
        self._engine = engine
        self._adopt = adopt
        self._at_once = anyio.Semaphore(AT_ONCE)
        self.counts: Counter[str] = Counter()

    async def recover(self, sandbox: Sandbox, is_there: bool) -> None:
        live = self._transitions.live_sandboxes[sandbox.id] = LiveSandbox(sandbox)
        async with self._at_once:
            try:
                async with live.held():
                    await self._make_true(live, is_there)
                if live.is_ready:
                    await self._adopt(live)
            except SandboxLost:
                pass  # It is gone, and the audit record says so.
            except Error:
                _log.warning("recovery.sandbox_failed", extra={"sandbox_id": live.id}, exc_info=True)
                self.counts["failed"] += 1
                return
        self.counts["removed" if live.is_gone else live.sandbox.status.value] += 1

    async def remove_stray(self, handle: Handle) -> None:
        """Destroy a sandbox without a record: from the pool, or half-made when the service died."""
        async with self._at_once:
            try:
                await self._engine.destroy(handle)
                self.counts["strays"] += 1
            except Error:
                _log.warning("recovery.remove_failed", extra={"sandbox_id": handle.sandbox_id}, exc_info=True)
                self.counts["failed"] += 1

    async def _make_true(self, live: LiveSandbox, is_there: bool) -> None:
        then = AFTER_CRASH[live.sandbox.status]
        if not is_there and then is not Status.DESTROYING:
            await self._transitions.write_off(live, "after a restart the engine does not know it any more")
        elif then is Status.RUNNING:
            await self._transitions.reach(live)
        else:
            await self._transitions.settle(live)
