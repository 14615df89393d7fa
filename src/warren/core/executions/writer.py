"""Execution writer: starts at once, finishes behind the answer, in an order that a crash cannot break.

1. A start is written while the execution runs; no answer is given before it is on disk.
2. A finish is written behind the answer: first its audit entry, then its record, then the agent may forget it.
   So a record with a result has its entry, and an execution without such a record is still with the agent.
3. A write that the store refuses is tried again. The agent keeps what is never written, and the next service finds it.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import anyio

from warren.core.executions.records import build_details, build_kept
from warren.domain.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence

    from anyio.abc import TaskGroup

    from warren.core.agent.client import AgentClient
    from warren.core.audit.log import Audit
    from warren.core.policy.policy import Policy
    from warren.domain.records import Caller, Execution
    from warren.stores.base import Store

T = TypeVar("T")

_BATCH = 256
_BACKLOG = 1024
_GATHER_S = 0.02
_RETRY_S = 0.1
_FLUSH_S = 5.0

_log = logging.getLogger(__name__)


class LazyEvent:
    """An event that costs nothing until a task waits for it. Unlike `anyio.Event`, a late waiter never yields."""

    __slots__ = ("_event", "_is_set")

    def __init__(self) -> None:
        self._is_set = False
        self._event: anyio.Event | None = None

    def is_set(self) -> bool:
        """Whether the event is set."""
        return self._is_set

    def set(self) -> None:
        """Set the event."""
        self._is_set = True
        if self._event is not None:
            self._event.set()

    async def wait(self) -> None:
        """Wait until the event is set."""
        if not self._is_set:
            if self._event is None:
                self._event = anyio.Event()
            await self._event.wait()


class Start:
    """A start on its way to the disk."""

    __slots__ = ("done", "execution", "failure")

    def __init__(self, execution: Execution) -> None:
        self.execution = execution
        self.done = LazyEvent()
        self.failure: StoreError | None = None

    async def wait(self) -> None:
        """Wait until it is written. Raises StoreError."""
        await self.done.wait()
        if self.failure is not None:
            raise StoreError(str(self.failure)) from self.failure


@dataclass(slots=True)
class Finish:
    """A finish in line."""

    execution: Execution
    caller: Caller
    outcome: str
    start: Start | None
    agent: AgentClient | None
    """Forgets the execution once it is written; None: keeps it."""
    is_audited: bool = False
    is_kept: bool = True
    details: dict[str, object] | None = None
    """Of its audit entry, where they were built before the record was cut."""


class ExecutionWriter:
    """Writes executions, in tasks of its owner."""

    def __init__(self, store: Store, audit: Audit, policy: Policy) -> None:
        self._store = store
        self._audit = audit
        self._policy = policy
        self._starts: list[Start] = []
        self._started = anyio.Event()
        self._finishes: dict[str, Finish] = {}
        self._wake = anyio.Event()
        self._hurry = anyio.Event()
        self._settled = anyio.Event()

    def open(self, tasks: TaskGroup) -> None:
        """Start the two writing tasks in this group."""
        tasks.start_soon(self._run)
        tasks.start_soon(self._run_starts)

    def start(self, execution: Execution) -> Start:
        """Put a start in line: it is written as soon as the caller yields."""
        start = Start(execution)
        self._starts.append(start)
        self._started.set()
        return start

    def finish(self, finish: Finish) -> None:
        """Put a finish in line."""
        if len(self._finishes) >= _BACKLOG:
            dropped = next(iter(self._finishes))
            del self._finishes[dropped]
            _log.error("execution.finish_dropped", extra={"execution_id": dropped})
        kept = build_kept(finish.execution, self._policy)
        if kept is not finish.execution:
            # What is too large to be kept must not wait in memory either.
            finish.details = build_details(finish.execution, self._policy)
            finish.execution = kept
        self._finishes[finish.execution.id] = finish
        self._wake.set()

    def get(self, execution_id: str) -> Execution | None:
        """Return a finished execution that is not on disk yet."""
        finish = self._finishes.get(execution_id)
        return None if finish is None else finish.execution

    def unwritten(self, sandbox_id: str) -> dict[str, Execution]:
        """Return the finished executions of a sandbox that are not on disk yet, by their ids."""
        return {id_: one.execution for id_, one in self._finishes.items() if one.execution.sandbox_id == sandbox_id}

    def note_all(self) -> None:
        """Put all finishes into the audit log now, ahead of their records: a query is about to read it."""
        for finish in self._finishes.values():
            self._note(finish)

    async def flush(self, sandbox_id: str | None = None) -> None:
        """Wait until all that has finished so far is on disk, 5 seconds at most. Raises StoreError."""
        waiting = set(self._finishes if sandbox_id is None else self.unwritten(sandbox_id))
        with anyio.move_on_after(_FLUSH_S) as scope:
            while waiting & self._finishes.keys():
                self._hurry.set()
                await self._settled.wait()
        if scope.cancelled_caught:
            raise StoreError(f"{len(waiting & self._finishes.keys())} executions could not be written down")

    async def _run_starts(self) -> None:
        starts: list[Start] = []
        try:
            while True:
                await self._started.wait()
                self._started = anyio.Event()
                starts, self._starts = self._starts, []
                await _together(self._write_start, starts)
        finally:
            # No task writes them any more, so none may wait for that.
            for start in (*starts, *self._starts):
                start.done.set()

    async def _run(self) -> None:
        failures = 0
        while True:
            await self._wake.wait()
            # WHY: no caller waits for this, and what finishes meanwhile is written in the same transaction.
            with anyio.move_on_after(_GATHER_S + min(failures, 10) * _RETRY_S):
                await self._hurry.wait()
            self._hurry = anyio.Event()
            try:
                await self._write(list(self._finishes.values())[:_BATCH])
                failures = 0
            except StoreError:
                failures += 1
            self._settled.set()
            self._settled = anyio.Event()
            if not self._finishes:
                self._wake = anyio.Event()

    async def _write(self, batch: list[Finish]) -> None:
        for finish in batch:
            if finish.start is not None:
                await finish.start.done.wait()
            self._note(finish)
        await self._audit.flush()
        for finish in batch:
            if not finish.is_kept:
                self._finishes.pop(finish.execution.id, None)
        failures: list[StoreError] = []
        kept = [finish for finish in batch if finish.is_kept]
        await _together(lambda finish: self._write_finish(finish, failures), kept)
        if failures:
            raise failures[0]

    async def _write_start(self, start: Start) -> None:
        try:
            await self._store.record(start.execution)
        except StoreError as error:
            start.failure = error
        except Exception as error:  # noqa: BLE001 - whatever it is, a caller waits for the answer
            _log_failure(start.execution, error)
            start.failure = StoreError("the start of the execution could not be written down")
        finally:
            start.done.set()

    async def _write_finish(self, finish: Finish, failures: list[StoreError]) -> None:
        try:
            await self._store.record(finish.execution)
        except StoreError as error:
            failures.append(error)
            return
        except Exception as error:  # noqa: BLE001 - one that can never be written must not hold up the others
            _log_failure(finish.execution, error)
            finish.agent = None
        self._finishes.pop(finish.execution.id, None)
        if finish.agent is not None:
            finish.agent.ack_soon(finish.execution.id)

    def _note(self, finish: Finish) -> None:
        if finish.is_audited:
            return
        finish.is_audited = True
        execution = finish.execution
        self._audit.note(
            finish.caller,
            "execution.finish",
            outcome=finish.outcome,
            sandbox_id=execution.sandbox_id,
            execution_id=execution.id,
            **(finish.details or build_details(execution, self._policy)),
        )


async def _together(write: Callable[[T], Coroutine[Any, Any, None]], items: Sequence[T]) -> None:
    """Write all at once, so that they share a transaction."""
    if len(items) == 1:
        await write(items[0])
        return
    async with anyio.create_task_group() as tasks:
        for item in items:
            tasks.start_soon(write, item)


def _log_failure(execution: Execution, error: Exception) -> None:
    # Not its message: that may hold code or output.
    _log.error("execution.write_failed", extra={"execution_id": execution.id, "error": type(error).__name__})
