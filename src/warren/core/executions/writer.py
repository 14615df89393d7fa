"""Writing executions down: starts at once, finishes behind the answer, in an order that a crash cannot break.

1. A start is written while the execution runs; no answer is given before it is on disk.
2. A finish is written behind: first its audit entry, then its record, then the agent is told that it may forget it.
   So a record with a result has its entry, and what has no such record is still with the agent.
3. What the store does not take is tried again. The agent keeps what never is written, and the next service finds it.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import anyio

from warren.core.concurrency.lazy_event import LazyEvent
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


class Start:
    """A start on its way to the disk."""

    __slots__ = ("done", "execution", "failure")

    def __init__(self, execution: Execution) -> None:
        self.execution = execution
        self.done = LazyEvent()
        self.failure: StoreError | None = None

    async def wait(self) -> None:
        """Wait until it is written. Raises StoreError when it cannot be."""
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
    """Whose agent may forget it, once it is written."""
    is_audited: bool = False
    is_kept: bool = True
    details: dict[str, object] | None = None
    """Of its audit entry, when they were built already."""


class ExecutionWriter:
    """The one who writes executions, in tasks of its owner's."""

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
        """Begin to write, in tasks of that group."""
        tasks.start_soon(self._run)
        tasks.start_soon(self._run_starts)

    def start(self, execution: Execution) -> Start:
        """Put a start in line: it is written as soon as the caller waits for anything."""
        start = Start(execution)
        self._starts.append(start)
        self._started.set()
        return start

    def finish(self, finish: Finish) -> None:
        """Put a finish in line."""
        if len(self._finishes) >= _BACKLOG:
            dropped = next(iter(self._finishes))
            del self._finishes[dropped]
            _log.error("execution.unwritten", extra={"execution_id": dropped})
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
        """Note what has finished in the audit record, without waiting for its record: somebody looks there now."""
        for finish in self._finishes.values():
            self._note(finish)

    async def flush(self, sandbox_id: str | None = None) -> None:
        """Have what has finished so far on disk. Raises StoreError when that cannot be."""
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
            # Nobody writes them any more, and nobody must wait for that.
            for start in (*starts, *self._starts):
                start.done.set()

    async def _run(self) -> None:
        failures = 0
        while True:
            await self._wake.wait()
            # WHY: nobody waits for this, and what finishes meanwhile is written in the same transaction.
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
        except Exception as error:  # noqa: BLE001 - whatever it is, somebody waits for the answer
            _log_unwritable(start.execution, error)
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
            _log_unwritable(finish.execution, error)
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
    """Write all at once, so that they go to the disk in one transaction."""
    if len(items) == 1:
        await write(items[0])
        return
    async with anyio.create_task_group() as tasks:
        for item in items:
            tasks.start_soon(write, item)


def _log_unwritable(execution: Execution, error: Exception) -> None:
    # Not its message: that may hold what was run, or what it said.
    _log.error("execution.unwritable", extra={"execution_id": execution.id, "error": type(error).__name__})
