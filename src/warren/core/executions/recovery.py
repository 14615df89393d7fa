"""Execution recovery: after a restart, each execution is followed, recorded or reported lost."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import anyio

from warren.core.executions.records import build_adopted, build_caller, build_lost
from warren.core.executions.supervisor import Running, find_result
from warren.domain.records import AuditQuery

if TYPE_CHECKING:
    from collections.abc import Callable

    from anyio.abc import TaskGroup

    from warren.core.agent.values import KnownExecution
    from warren.core.executions.supervisor import ExecutionSupervisor
    from warren.core.sandboxes.sandboxes import LiveSandbox
    from warren.domain.records import Execution, Sandbox
    from warren.domain.values import ExecResult
    from warren.stores.base import Store

_ANSWER_S = 10.0
_ID = re.compile(r"exe_[a-z0-9]{8,40}")


class ExecutionRecovery:
    """Compares the executions that an agent knows with those that the store has as running."""

    def __init__(self, store: Store, supervisor: ExecutionSupervisor, is_ours: Callable[[Sandbox], bool]) -> None:
        self._store = store
        self._supervisor = supervisor
        self._is_ours = is_ours
        self._is_over = False

    async def adopt(self, live: LiveSandbox, tasks: TaskGroup) -> None:
        """Take over one sandbox. Its finished executions are settled when this returns; the others are followed."""
        # Checked: the agent only claims its ids, and one of its own making could not be stored.
        known = {one.id: one for one in live.agent.hello.executions if _ID.fullmatch(one.id)}
        recorded = {one.id: one for one in await self._store.running(live.sandbox.id)}
        for execution_id, execution in recorded.items():
            if execution_id not in known:
                await self._lose(execution, "its sandbox no longer knew it when the service came back")
        for one in known.values():
            if one.id not in self._supervisor.running:
                running = await self._take(live, one, recorded.get(one.id) or await self._store.execution(one.id))
                if running is not None and one.running:
                    tasks.start_soon(self._follow, live, running)
                elif running is not None:
                    # Bounded: an agent that claims to have the result may not give it.
                    with anyio.move_on_after(_ANSWER_S):
                        await self._follow(live, running)

    async def lose_rest(self) -> None:
        """Report as lost every execution that is recorded as running in a sandbox of ours that was not adopted."""
        for execution in await self._store.running():
            sandbox = await self._store.get(execution.sandbox_id)
            if sandbox is None or self._is_ours(sandbox):
                await self._lose(execution, "its sandbox was gone when the service came back")
        self._is_over = True

    async def lose(self, sandbox_id: str) -> None:
        """Report as lost the executions of a sandbox that is stopped or destroyed before it was adopted."""
        if not self._is_over:
            for execution in await self._store.running(sandbox_id):
                await self._lose(execution, "its sandbox could not be reached when the service came back")

    async def _take(self, live: LiveSandbox, known: KnownExecution, execution: Execution | None) -> Running | None:
        """Take one execution over; None when it needs no waiting for."""
        if execution is None:
            execution = build_adopted(live.sandbox, known.id)
            await self._store.record(execution)
        elif execution.sandbox_id != live.sandbox.id:
            return None
        elif execution.result is not None:
            # Written, and so audited, before the crash; only the agent does not know.
            if not execution.background:
                live.agent.ack_soon(known.id)
            return None
        running = Running(execution, build_caller(execution), live)
        running.is_audited = await self._is_audited(execution.id)
        self._supervisor.admit(running, is_recorded=True)
        return running

    async def _follow(self, live: LiveSandbox, running: Running) -> None:
        async def wait() -> ExecResult:
            return await find_result(live.agent, running.execution.id)

        with live.busy():
            await self._supervisor.supervise_apart(running, wait)

    async def _lose(self, execution: Execution, why: str) -> None:
        if execution.id in self._supervisor.running or self._supervisor.writer.get(execution.id) is not None:
            return
        # WHY in this order: one that is in neither may have ended, and been written, since the store was read.
        current = await self._store.execution(execution.id)
        if current is None or current.result is not None:
            return
        running = Running(execution, build_caller(execution), None)
        running.is_audited = await self._is_audited(execution.id)
        self._supervisor.settle(running, build_lost(execution, why))

    async def _is_audited(self, execution_id: str) -> bool:
        """Whether a crash came between the audit entry and the record."""
        query = AuditQuery(execution_id=execution_id, action="execution.finish", limit=1)
        return (await self._store.audit(query)).total > 0
