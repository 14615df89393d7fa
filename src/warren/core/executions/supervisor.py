"""Seeing an execution through: from the moment it is admitted, over whatever happens to it, to its record."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import anyio

from warren.core.executions.cancel import end, find_result
from warren.core.executions.records import add_failed, add_refused, build_finished, build_lost, build_refused
from warren.core.executions.writer import Finish
from warren.domain.errors import Error, NotFound, SandboxLost

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from warren.core.egress.policy_table import EgressPolicies
    from warren.core.executions.running import Running
    from warren.core.executions.writer import ExecutionWriter
    from warren.core.sandboxes.connections import AgentConnections
    from warren.core.telemetry.counters import Counters
    from warren.domain.values import ExecResult

_CONNECT_S = 10.0
_END_S = 2.0


class ExecutionSupervisor:
    """Knows every execution under way in this process, and leaves none of them without a result."""

    def __init__(
        self,
        writer: ExecutionWriter,
        connections: AgentConnections,
        observer: Counters,
        egress: EgressPolicies | None = None,
    ) -> None:
        self.writer = writer
        self.running: dict[str, Running] = {}
        self.is_closing = False
        """True when the service ends: executions then run on, and the next service finds them."""
        self._connections = connections
        self._observer = observer
        self._egress = egress

    def admit(self, running: Running, *, is_recorded: bool = False) -> None:
        """Take in an execution that is about to begin, and write that down."""
        self.running[running.execution.id] = running
        if self._egress is not None:
            running.refused = self._egress.refused(running.execution.sandbox_id)[0]
            running.failed = self._egress.failed(running.execution.sandbox_id)[0]
        if running.is_kept and not is_recorded:
            running.start = self.writer.start(running.execution)

    async def conduct(self, running: Running, wait: Callable[[], Awaitable[ExecResult]]) -> None:
        """Wait for the result and settle it. Cancelling ends the execution, unless the service is closing."""
        try:
            result = await self._result(running, wait)
        except Error as error:
            running.error = error
            result = build_refused(running.execution, str(error))
        except anyio.get_cancelled_exc_class():
            if not self.is_closing:
                with anyio.CancelScope(shield=True):
                    self.settle(running, await end(running, running.grace_s))
            self.running.pop(running.execution.id, None)
            raise
        self.settle(running, result)

    async def conduct_apart(self, running: Running, wait: Callable[[], Awaitable[ExecResult]]) -> None:
        """As `conduct`, in a task of its own, which `running.end` ends."""
        with running.scope or anyio.CancelScope() as running.scope:
            await self.conduct(running, wait)

    async def end_all(self, sandbox_id: str) -> None:
        """Kill what runs in a sandbox, and wait a moment for the results: nothing is there to give them later."""
        ended = [one for one in self.running.values() if one.execution.sandbox_id == sandbox_id]
        with anyio.move_on_after(_END_S):
            for running in ended:
                with contextlib.suppress(Error):
                    await running.open_link.kill(running.execution.id)
            for running in ended:
                await running.finished.wait()

    def settle(self, running: Running, result: ExecResult) -> None:
        """Say how an execution ended, to whoever waits for it and to the writer."""
        if self._egress is not None:
            result = self._add_hint(self._egress, running, result)
        execution = running.execution = build_finished(running.execution, result)
        self._observer.execution_finished(execution.kind.value, result.cause.value, result.duration_ms / 1000)
        self.writer.finish(
            Finish(
                execution=execution,
                caller=running.caller,
                outcome="ok" if running.error is None else running.error.code,
                start=running.start,
                # What runs in the background stays with the agent, which has all of its events.
                agent=None if execution.background else running.agent,
                is_audited=running.is_audited,
                is_kept=running.is_kept,
            )
        )
        self.running.pop(execution.id, None)
        if running.stdin is not None:
            running.stdin.close()
        running.finished.set()

    def _add_hint(self, egress: EgressPolicies, running: Running, result: ExecResult) -> ExecResult:
        """Say which connections it could not have meanwhile."""
        count, why = egress.refused(running.execution.sandbox_id)
        if count > running.refused:
            return add_refused(result, count - running.refused, why)
        count, why = egress.failed(running.execution.sandbox_id)
        # Only where something went wrong: programs try things, and go on without them.
        return add_failed(result, why) if count > running.failed and not result.ok else result

    async def _result(self, running: Running, wait: Callable[[], Awaitable[ExecResult]]) -> ExecResult:
        try:
            return await wait()
        except SandboxLost as error:
            why = str(error)
        # Perhaps only the connection was lost: executions belong to the agent.
        live, agent = running.live, running.agent
        with contextlib.suppress(SandboxLost, NotFound, TimeoutError):
            if live is not None and agent is not None and not agent.broke_protocol:
                with anyio.fail_after(_CONNECT_S):
                    running.agent = await self._connections.get(live.handle)
                return await find_result(running.agent, running.execution.id)
        stdout, stderr = running.partial()
        return build_lost(running.execution, why, stdout=stdout, stderr=stderr)
