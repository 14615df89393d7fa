"""Executions: run code in sandboxes, at once, followed or in the background. Each one is recorded."""

from __future__ import annotations

import contextlib
import dataclasses
from typing import TYPE_CHECKING, Self

import anyio
from anyio import lowlevel

from warren.core.concurrency.fair_queue import OwnerLimiter
from warren.core.executions.following import Followers
from warren.core.executions.idempotency import IdempotencyGuard
from warren.core.executions.records import build_caller, build_started
from warren.core.executions.recovery import ExecutionRecovery
from warren.core.executions.request import NewExecution, build_request
from warren.core.executions.supervisor import ExecutionSupervisor, Running
from warren.core.executions.writer import ExecutionWriter
from warren.core.sandboxes.sandboxes import not_yours
from warren.core.telemetry.counters import Counters
from warren.core.telemetry.tracing import Tracer, describe, run_traced
from warren.domain.errors import Conflict, Forbidden, NotFound, SandboxLost, StoreError
from warren.domain.records import Scope

if TYPE_CHECKING:
    from anyio.abc import TaskStatus

    from warren.core.audit.log import Audit
    from warren.core.concurrency.admission import Admission
    from warren.core.egress.policy_table import EgressPolicies
    from warren.core.executions.following import Following, StdinPipe
    from warren.core.policy.policy import Policy
    from warren.core.sandboxes.connections import AgentConnections
    from warren.core.sandboxes.sandboxes import LiveSandbox, Sandboxes
    from warren.core.telemetry.tracing import Span
    from warren.domain.records import Caller, Execution, Page
    from warren.domain.values import ExecRequest
    from warren.stores.base import Store

__all__ = ["Executions", "NewExecution", "Running"]

_ACCEPT_S = 10.0
"""How long an agent may take to say that it has taken an execution; after that, its followers see how it ends."""


class Executions:
    """The executions of all sandboxes. Its tasks run inside `async with`; leaving flushes, and ends none."""

    def __init__(
        self,
        *,
        store: Store,
        sandboxes: Sandboxes,
        connections: AgentConnections,
        admission: Admission,
        audit: Audit,
        policy: Policy,
        observer: Counters | None = None,
        tracer: Tracer | None = None,
        egress: EgressPolicies | None = None,
    ) -> None:
        self._store = store
        self._sandboxes = sandboxes
        self._admission = admission
        self._audit = audit
        self._policy = policy
        self._connections = connections
        self._tracer = tracer or Tracer()
        self._writer = ExecutionWriter(store, audit, policy)
        audit.before_look.append(self._writer.note_all)
        observer = observer or Counters()
        self._supervisor = ExecutionSupervisor(self._writer, connections, observer, egress)
        self._followers = Followers(observer)
        # Each may be 2 MiB and its displays, and as JSON six times that, for as long as its client does not read it.
        self.results = OwnerLimiter(
            observer, "large results", what_own="large results of yours", own=8, everybody=32, waiting=64
        )
        self._recovery = ExecutionRecovery(store, self._supervisor, sandboxes.transitions.is_ours)
        self._idempotency = IdempotencyGuard(store, self._look_up)

    async def __aenter__(self) -> Self:
        self._tasks = anyio.create_task_group()
        await self._tasks.__aenter__()
        self._writer.open(self._tasks)
        return self

    async def __aexit__(self, *_raised: object) -> None:
        self._supervisor.is_closing = True
        # An execution that cannot be written now is still with its agent, where the next service finds it.
        with anyio.CancelScope(shield=True), contextlib.suppress(StoreError):
            await self.flush()
        self._tasks.cancel_scope.cancel()
        # The body's exception is not handed over: a task group would wrap it, and callers catch it by its class.
        await self._tasks.__aexit__(None, None, None)

    async def run(self, caller: Caller, sandbox_id: str, new: NewExecution, *, is_kept: bool = True) -> Execution:
        """Run something and return it with its result. If the caller is cancelled it is ended, and recorded.

        An execution that is not kept has only its audit entry: for a sandbox that is removed right after it.
        """
        is_kept = is_kept or new.idempotency_key is not None
        running = await self._idempotency.run(
            caller, sandbox_id, new, lambda ours: self._run(caller, sandbox_id, new, ours, is_kept=is_kept)
        )
        return await running.wait()

    async def begin(self, caller: Caller, sandbox_id: str, new: NewExecution) -> Running:
        """Start something that is followed by its `events`. Use it with `async with`, or call `release`."""
        return await self._idempotency.run(
            caller, sandbox_id, new, lambda ours: self._begin(caller, sandbox_id, new, ours)
        )

    async def start(self, caller: Caller, sandbox_id: str, new: NewExecution) -> Execution:
        """Start something in the background and return it, running."""
        running = await self.begin(caller, sandbox_id, dataclasses.replace(new, background=True))
        return running.execution

    async def get(self, caller: Caller, sandbox_id: str, execution_id: str) -> Execution:
        """Return an execution. Raises NotFound."""
        return (await self._find(caller, sandbox_id, execution_id)).execution

    async def list(self, caller: Caller, sandbox_id: str, *, offset: int = 0, limit: int = 50) -> Page[Execution]:
        """Return a page of a sandbox's executions, newest first."""
        await self._sandboxes.get(caller, sandbox_id)
        # WHY before the store is read: a finish that is written meanwhile would be in neither of the two.
        unwritten = self._writer.unwritten(sandbox_id)
        page = await self._store.executions(sandbox_id, offset=offset, limit=limit)
        items = tuple(one if one.result is not None else unwritten.get(one.id, one) for one in page.items)
        return dataclasses.replace(page, items=items)

    async def events(
        self, caller: Caller, sandbox_id: str, execution_id: str, after: int = 0, *, follow: bool = True
    ) -> Following:
        """Return the events after number `after`, live ones too: await this, iterate, and close it if you leave early.

        The result, always the last, holds the whole output; an execution that no caller followed has no event before
        it. Without `follow` it ends with what has happened by now.
        Raises NotFound, and QuotaExceeded for a caller who follows too many.
        """
        running = await self._find(caller, sandbox_id, execution_id)
        return self._followers.follow(caller.principal.owner, running.events(after, follow=follow))

    async def write_stdin(self, caller: Caller, sandbox_id: str, execution_id: str, data: bytes) -> None:
        """Write input to a running execution; waits while it has enough. Raises Conflict when its input is not open."""
        await (await self._find_stdin(caller, sandbox_id, execution_id)).write(data)

    async def close_stdin(self, caller: Caller, sandbox_id: str, execution_id: str) -> None:
        """Close the input of a running execution. Raises Conflict when its input is not open."""
        (await self._find_stdin(caller, sandbox_id, execution_id)).finish()

    async def interrupt(self, caller: Caller, sandbox_id: str, execution_id: str) -> None:
        """Send SIGINT to a running execution. One that has ended is left alone."""
        await self._signal("interrupt", caller, sandbox_id, execution_id)

    async def kill(self, caller: Caller, sandbox_id: str, execution_id: str) -> None:
        """Kill a running execution; a kernel is rolled back. One that has ended is left alone."""
        await self._signal("kill", caller, sandbox_id, execution_id)

    async def adopt(self, live: LiveSandbox) -> None:
        """Take over what a sandbox was running when an earlier service ended: follow, record, or report it lost."""
        await self._recovery.adopt(live, self._tasks)

    async def lose_rest(self) -> None:
        """Report as lost what ran in sandboxes that could not be adopted: called once, after the last `adopt`."""
        await self._recovery.lose_rest()

    async def end_all(self, sandbox_id: str) -> None:
        """Kill what runs in a sandbox that is about to be stopped or destroyed, and write all of it to disk."""
        await self._supervisor.end_all(sandbox_id)
        await self._recovery.lose(sandbox_id)
        await self._writer.flush(sandbox_id)

    async def flush(self, sandbox_id: str | None = None) -> None:
        """Wait until everything that has finished, in one sandbox or in all, is on disk. Raises StoreError."""
        await self._writer.flush(sandbox_id)

    @property
    def under_way(self) -> int:
        """How many executions run now."""
        return len(self._supervisor.running)

    async def _run(
        self, caller: Caller, sandbox_id: str, new: NewExecution, execution_id: str, *, is_kept: bool = True
    ) -> Running:
        """Run in the caller's own task, without followers: the least that one execution can cost."""
        request = build_request(new, execution_id, self._policy, stream=False)
        self._audit.check_writable()
        with self._tracer.span("execution") as span:
            async with self._admission.executing(caller.principal), self._sandboxes.use(caller, sandbox_id) as live:
                running = self._admit(caller, live, new, request, is_kept=is_kept)
                await self._supervisor.supervise(
                    running, lambda: run_traced(self._tracer, live.agent, request, stdin=new.stdin)
                )
            _finish_span(span, running)
        await self._check_start(running)
        running.check_refused()
        return running

    async def _begin(self, caller: Caller, sandbox_id: str, new: NewExecution, execution_id: str) -> Running:
        """Run in a task of the service, with events that are kept for followers."""
        self._audit.check_writable()
        running: Running = await self._tasks.start(self._supervise_apart, caller, sandbox_id, new, execution_id)
        try:
            # The agent answers in order: after this answer it has taken or refused the execution.
            with contextlib.suppress(SandboxLost), anyio.move_on_after(min(running.limit_s, _ACCEPT_S)):
                await running.connected_agent.ping()
            await self._check_start(running)
            await lowlevel.checkpoint()
        except StoreError:
            # It has no record, so it must not go on.
            running.end()
            raise
        except BaseException:
            running.release()
            raise
        running.check_refused()
        return running

    async def _supervise_apart(
        self, caller: Caller, sandbox_id: str, new: NewExecution, execution_id: str, *, task_status: TaskStatus[Running]
    ) -> None:
        request = build_request(new, execution_id, self._policy, stream=True)
        with self._tracer.span("execution") as span:
            async with self._admission.executing(caller.principal), self._sandboxes.use(caller, sandbox_id) as live:
                running = self._admit(caller, live, new, request)
                stdin = running.open_stdin(new.stdin) if new.stdin_open else new.stdin
                running.scope = anyio.CancelScope()
                task_status.started(running)
                keep = running.keep_partial
                await self._supervisor.supervise_apart(
                    running, lambda: run_traced(self._tracer, live.agent, request, stdin=stdin, on_event=keep)
                )
            _finish_span(span, running)

    def _admit(
        self, caller: Caller, live: LiveSandbox, new: NewExecution, request: ExecRequest, *, is_kept: bool = True
    ) -> Running:
        if live.agent.lost is not None:
            raise SandboxLost(str(live.agent.lost))
        execution = build_started(caller, live.sandbox, new, request.id, self._policy)
        running = Running(execution, caller, live, timeout_s=request.timeout_s, grace_s=request.grace_s)
        running.is_kept = is_kept
        self._supervisor.admit(running)
        return running

    async def _check_start(self, running: Running) -> None:
        """Wait until its start is on disk, or else its finish. Raises StoreError."""
        if running.start is None:
            return
        try:
            await running.start.wait()
        except StoreError:
            if not running.finished.is_set():
                raise
            await self._writer.flush(running.execution.sandbox_id)

    async def _find(self, caller: Caller, sandbox_id: str, execution_id: str) -> Running:
        """Find an execution of a sandbox that the caller may see. Raises NotFound."""
        await self._sandboxes.get(caller, sandbox_id)
        running = await self._look_up(execution_id)
        if running is None or running.execution.sandbox_id != sandbox_id:
            raise NotFound(f"sandbox {sandbox_id} has no execution {execution_id[:64]!r}")
        return running

    async def _look_up(self, execution_id: str) -> Running | None:
        running = self._supervisor.running.get(execution_id)
        if running is not None:
            return running
        execution = self._writer.get(execution_id) or await self._store.execution(execution_id)
        if execution is None:
            return None
        if execution.result is None and (sandbox := await self._store.get(execution.sandbox_id)) is not None:
            # It may run in a sandbox of another engine, of which this service hears nothing.
            self._sandboxes.transitions.check_ours(sandbox)
        # The agent may still have all events of one that ran in the background.
        agent = self._connections.peek(execution.sandbox_id) if execution.background else None
        return Running(execution, build_caller(execution), None, agent=agent)

    async def _signal(self, verb: str, caller: Caller, sandbox_id: str, execution_id: str) -> None:
        running = await self._find_to_change(caller, sandbox_id, execution_id)
        if not running.finished.is_set():
            self._audit.note(caller, f"execution.{verb}", sandbox_id=sandbox_id, execution_id=execution_id)
            await self._audit.settle()
            agent = running.connected_agent
            with contextlib.suppress(NotFound):
                await (agent.interrupt if verb == "interrupt" else agent.kill)(execution_id)

    async def _find_to_change(self, caller: Caller, sandbox_id: str, execution_id: str) -> Running:
        if not caller.principal.may(Scope.RUN):
            raise Forbidden("this needs a key with the run scope")
        return await self._find(caller, sandbox_id, execution_id)

    async def _find_stdin(self, caller: Caller, sandbox_id: str, execution_id: str) -> StdinPipe:
        running = await self._find_to_change(caller, sandbox_id, execution_id)
        if running.execution.owner != caller.principal.owner:
            raise not_yours(sandbox_id)
        if running.stdin is None:
            raise Conflict("the execution takes no input: it has ended, or was not started with its input open")
        return running.stdin


def _finish_span(span: Span, running: Running) -> None:
    span.set({"warren.sandbox_id": running.execution.sandbox_id, "warren.execution_id": running.execution.id})
    if running.error is not None:
        span.fail(running.error.code)
    elif running.execution.result is not None:
        span.set(describe(running.execution.result))
