"""Execution supervisor: follows every execution from admission to its record, so that none is without a result."""

from __future__ import annotations

import contextlib
import math
from dataclasses import replace
from typing import TYPE_CHECKING, Self

import anyio

from warren.core.executions.clocks import LATE_S, Clocks
from warren.core.executions.following import StdinPipe, replay
from warren.core.executions.records import add_failed, add_refused, build_finished, build_lost, build_refused
from warren.core.executions.writer import Finish, LazyEvent
from warren.domain.errors import Error, NotFound, SandboxLost
from warren.domain.values import KIB, Event
from warren.guest.wire.frames import ProtocolError
from warren.guest.wire.output import HeadTail

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterable, Awaitable, Callable

    from warren.core.agent.client import AgentClient
    from warren.core.egress.policy_table import EgressPolicies
    from warren.core.executions.writer import ExecutionWriter, Start
    from warren.core.sandboxes.connections import AgentConnections
    from warren.core.sandboxes.live import LiveSandbox
    from warren.core.telemetry.counters import Counters
    from warren.domain.records import Caller, Execution
    from warren.domain.values import ExecResult

PARTIAL_BYTES = 64 * KIB
_CONNECT_S = 10.0
_ANSWER_S = 10.0
"""How long an agent may take for what it does at once."""
_LATE = "its agent did not report its end in time"
_END_S = 2.0
_GONE = "The sandbox was lost before this cell, and started again: the variables of earlier cells are gone."
_ENDED = "No caller waited for it any more, so it was ended."


class Running:
    """One execution, from its admission until its end is known.

    A caller that began one in the foreground and loses interest calls `release`, or uses `async with`: the execution
    is then ended.
    """

    def __init__(
        self,
        execution: Execution,
        caller: Caller,
        live: LiveSandbox | None,
        *,
        agent: AgentClient | None = None,
        timeout_s: float | None = None,
        grace_s: float = 1.0,
    ) -> None:
        self.execution = execution
        """As it is known now; with its result once `finished` is set."""
        self.caller = caller
        self.live = live
        """Where it runs; None for one that is known only from its record."""
        self.agent = agent if live is None else live.agent
        self.limit_s = math.inf if timeout_s is None else timeout_s + grace_s + LATE_S
        """After which its end is not waited for any more."""
        self.watch = anyio.CancelScope()
        """The wait for its end. Its deadline is set when no other cell is before it in its kernel."""
        self.grace_s = grace_s
        self.stdin: StdinPipe | None = None
        self.start: Start | None = None
        """Its start on the way to the disk; None when it was there before."""
        self.finished = LazyEvent()
        if live is None:
            self.finished.set()
        self.refused = 0
        """Connections that egress had refused its sandbox when it began."""
        self.failed = 0
        """Allowed connections of its sandbox that had failed by then."""
        self.is_audited = False
        self.is_kept = True
        """Whether it has a record; otherwise it has only an audit entry."""
        self.error: Error | None = None
        """Why it never ran, when the agent refused it."""
        self.scope: anyio.CancelScope | None = None
        """Cancelled to end it: the wait for the result is in it. None where the caller's own task waits."""
        self._holders = 1
        self._output: dict[str, HeadTail] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_raised: object) -> None:
        self.release()

    def hold(self) -> None:
        """Add a caller that waits for it: one with the same idempotency key."""
        self._holders += 1

    def release(self) -> None:
        """Remove a caller. When the last one leaves, an execution in the foreground is ended and recorded."""
        self._holders -= 1
        if self._holders <= 0 and not self.execution.background:
            self.end()

    def end(self) -> None:
        """Have it ended and recorded, if it still runs and a task of the service waits for it."""
        if self.scope is not None and not self.finished.is_set():
            self.scope.cancel()

    @property
    def connected_agent(self) -> AgentClient:
        """The connection to its agent. Raises SandboxLost when there is none."""
        if self.agent is None:
            raise SandboxLost("there is no connection to the sandbox of this execution")
        return self.agent

    def open_stdin(self, first: bytes | None) -> AsyncIterable[bytes]:
        """Take its input from `stdin`, which can be written to from now on."""
        self.stdin = StdinPipe(first or b"")
        return self.stdin

    async def wait(self) -> Execution:
        """Wait for its end. Raises the error that the agent refused it with."""
        await self.finished.wait()
        self.check_refused()
        return self.execution

    def check_refused(self) -> None:
        """Raise the error that the agent refused it with, if it did."""
        if self.error is not None:
            raise type(self.error)(str(self.error))

    def keep_partial(self, event: Event) -> None:
        """Keep some of its output, in case its sandbox is lost with the rest."""
        if event.kind in {"stdout", "stderr"}:
            self._output.setdefault(event.kind, HeadTail(PARTIAL_BYTES)).add(event.data)

    def partial(self) -> tuple[bytes, bytes]:
        """Return the known part of its stdout and stderr while there is no result."""
        stdout, stderr = (self._output.get(kind) for kind in ("stdout", "stderr"))
        return b"" if stdout is None else stdout.kept(), b"" if stderr is None else stderr.kept()

    async def events(self, after: int = 0, *, follow: bool = True) -> AsyncGenerator[Event, None]:
        """Yield its events after number `after`, live too; the result is the last. Leaving early releases nothing.

        A slow reader misses output, and the next event says how much: nothing piles up here. Without `follow` it ends
        with what had happened when it began.
        """
        seen = after
        with contextlib.suppress(SandboxLost, NotFound):
            agent = self.connected_agent
            async with contextlib.aclosing(agent.attach(self.execution.id, after, follow=follow)) as events:
                async for event in events:
                    seen = event.seq
                    # Settled first: a follower that has the result may ask for the record of it.
                    yield event if event.result is None else _add_known(event, await self.wait())
                return
        if follow or self.finished.is_set():
            for event in replay(await self.wait(), seen):
                yield event


class ExecutionSupervisor:
    """Holds every execution under way in this process, and settles each exactly once."""

    def __init__(
        self,
        writer: ExecutionWriter,
        connections: AgentConnections,
        observer: Counters,
        egress: EgressPolicies | None = None,
    ) -> None:
        self.writer = writer
        self.running: dict[str, Running] = {}
        self._clocks = Clocks()
        self.is_closing = False
        """True when the service ends: executions then run on, and the next service finds them."""
        self._connections = connections
        self._observer = observer
        self._egress = egress

    def admit(self, running: Running, *, is_recorded: bool = False) -> None:
        """Take in an execution that is about to begin, and put its start in line to be written."""
        self.running[running.execution.id] = running
        self._clocks.add(running)
        if self._egress is not None:
            running.refused = self._egress.refused(running.execution.sandbox_id)[0]
            running.failed = self._egress.failed(running.execution.sandbox_id)[0]
        if running.is_kept and not is_recorded:
            running.start = self.writer.start(running.execution)

    async def supervise(self, running: Running, wait: Callable[[], Awaitable[ExecResult]]) -> None:
        """Wait for the result and settle it. Cancelling ends the execution, unless the service is closing.

        The agent holds the timeout; this bounds the wait whatever the agent does.
        """
        result = None
        try:
            with running.watch:
                result = await self._wait(running, wait)
            if result is None:
                result = await _end_late(running)
        except Error as error:
            running.error = error
            result = build_refused(running.execution, str(error))
        except anyio.get_cancelled_exc_class():
            if not self.is_closing:
                with anyio.CancelScope(shield=True):
                    self.settle(running, await end(running, running.grace_s))
            self._leave(running)
            raise
        self.settle(running, result)

    async def supervise_apart(self, running: Running, wait: Callable[[], Awaitable[ExecResult]]) -> None:
        """As `supervise`, in a task of its own, which `running.end` ends."""
        with running.scope or anyio.CancelScope() as running.scope:
            await self.supervise(running, wait)

    async def end_all(self, sandbox_id: str) -> None:
        """Kill what runs in a sandbox, and wait up to 2 seconds for the results: later no agent can give them."""
        ended = [one for one in self.running.values() if one.execution.sandbox_id == sandbox_id]
        with anyio.move_on_after(_END_S):
            for running in ended:
                with contextlib.suppress(Error):
                    await running.connected_agent.kill(running.execution.id)
            for running in ended:
                await running.finished.wait()

    def settle(self, running: Running, result: ExecResult) -> None:
        """Finish an execution: for the callers that wait for it, the metrics and the writer."""
        if self._egress is not None:
            result = self._explain_egress(self._egress, running, result)
        if running.live is not None and running.execution.kernel is not None and running.error is None:
            result = _tell_lost(running.live, running.execution.kernel, result)
        execution = running.execution = build_finished(running.execution, result)
        self._observer.execution_finished(execution.kind.value, result.cause.value, result.duration_ms / 1000)
        self.writer.finish(
            Finish(
                execution=execution,
                caller=running.caller,
                outcome="ok" if running.error is None else running.error.code,
                start=running.start,
                # One in the background stays with the agent, which has all of its events.
                agent=None if execution.background else running.agent,
                is_audited=running.is_audited,
                is_kept=running.is_kept,
            )
        )
        self._leave(running)
        if running.stdin is not None:
            running.stdin.close()
        running.finished.set()

    def _explain_egress(self, egress: EgressPolicies, running: Running, result: ExecResult) -> ExecResult:
        """Add a hint about the connections that its sandbox did not get meanwhile."""
        count, why = egress.refused(running.execution.sandbox_id)
        if count > running.refused:
            return add_refused(result, count - running.refused, why)
        count, why = egress.failed(running.execution.sandbox_id)
        # Only when it went wrong: programs try connections and go on without them.
        return add_failed(result, why) if count > running.failed and not result.ok else result

    def _leave(self, running: Running) -> None:
        """Forget an execution that has ended."""
        self.running.pop(running.execution.id, None)
        self._clocks.remove(running)

    async def _wait(self, running: Running, wait: Callable[[], Awaitable[ExecResult]]) -> ExecResult:
        try:
            return await wait()
        except SandboxLost as error:
            return await self._find_again(running, str(error))

    async def _find_again(self, running: Running, why: str) -> ExecResult:
        """Ask for the result over a new connection: executions belong to the agent, which may still be there."""
        live, agent = running.live, running.agent
        with contextlib.suppress(SandboxLost, NotFound, TimeoutError):
            if live is not None and agent is not None and not agent.broke_protocol:
                with anyio.fail_after(_CONNECT_S):
                    running.agent = await self._connections.get(live.handle)
                return await find_result(running.agent, running.execution.id)
        stdout, stderr = running.partial()
        return build_lost(running.execution, why, stdout=stdout, stderr=stderr)


async def find_result(agent: AgentClient, execution_id: str) -> ExecResult:
    """Wait for the end of an execution that an agent has. Raises NotFound when the agent has forgotten it."""
    async with contextlib.aclosing(agent.attach(execution_id)) as events:
        async for event in events:
            if event.result is not None:
                return event.result
    raise agent.break_off(ProtocolError("an execution ended without a result"))


async def _end_late(running: Running) -> ExecResult:
    """Kill an execution that has outlived its time, and return its result if the agent gives one at once."""
    execution, agent = running.execution, running.agent
    if agent is not None and agent.lost is None:
        # The agent may have been in time, and this process late.
        with anyio.move_on_after(LATE_S), contextlib.suppress(Error):
            await agent.kill(execution.id)
            return await find_result(agent, execution.id)
        agent.give_up(execution.id, _LATE)
    stdout, stderr = running.partial()
    return build_lost(execution, _LATE, stdout=stdout, stderr=stderr)


async def end(running: Running, grace_s: float) -> ExecResult:
    """Interrupt an execution, kill it if that is not enough, and return how it ended."""
    execution, why = running.execution, "it did not end when it was killed"
    try:
        agent = running.connected_agent
        with anyio.move_on_after(_ANSWER_S + grace_s):
            await agent.interrupt(execution.id)
            with anyio.move_on_after(grace_s):
                return _note_ended(await find_result(agent, execution.id))
            await agent.kill(execution.id)
            return _note_ended(await find_result(agent, execution.id))
    except SandboxLost as error:
        why = str(error)
    except Error:
        return build_refused(execution, "its caller went away before it began")
    return build_lost(execution, why)


def _note_ended(result: ExecResult) -> ExecResult:
    return replace(result, notes=(*result.notes, _ENDED))


def _tell_lost(live: LiveSandbox, kernel: str, result: ExecResult) -> ExecResult:
    """Say in the first result of a kernel after its agent was lost that its variables are gone."""
    state = live.note_cell(kernel, result.state)
    return result if state is result.state else replace(result, state=state, notes=(*result.notes, _GONE))


def _add_known(event: Event, execution: Execution) -> Event:
    """Put what only the service knows into a result event: refused connections, variables lost with an agent."""
    known, claimed = execution.result, event.result
    if known is None or claimed is None:
        return event
    if (known.hint, known.state, known.notes) == (claimed.hint, claimed.state, claimed.notes):
        return event
    return replace(event, result=replace(claimed, hint=known.hint, state=known.state, notes=known.notes))
