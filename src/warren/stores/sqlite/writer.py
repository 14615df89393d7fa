"""The one thread that writes: what waits is committed together, and one that fails does not harm the others."""

from __future__ import annotations

import asyncio
import contextlib
import queue
import sqlite3
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import anyio

from warren.errors import Error, StoreError
from warren.stores.sqlite.failure import damaged, explain, is_locked

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from warren.stores.sqlite.audit import Appender
    from warren.stores.sqlite.checkpoints import Checkpoints

T = TypeVar("T")

MOST_AT_ONCE = 256


@dataclass(slots=True)
class _Job:
    operation: Callable[[sqlite3.Connection], Any]
    future: asyncio.Future[Any]
    loop: asyncio.AbstractEventLoop
    in_steps: bool
    flushed: bool
    outcome: Any = None
    error: BaseException | None = None

    def fail(self, error: BaseException) -> None:
        self.outcome, self.error = None, error


class Writer:
    """Performs operations on its connection in the order they come."""

    def __init__(self, connection: sqlite3.Connection, path: str, appender: Appender, checkpoints: Checkpoints) -> None:
        self._connection = connection
        self._path = path
        self._appender = appender
        self._checkpoints = checkpoints
        self._queue: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._is_open = True
        # WHY: a daemon, so that a program that fails before it closes the store still ends; what was
        # acknowledged is in the file by then.
        self._thread = threading.Thread(target=self._run, name="warren-store", daemon=True)
        self._thread.start()

    async def do(
        self, operation: Callable[[sqlite3.Connection], T], *, in_steps: bool = True, flushed: bool = False
    ) -> T:
        """Perform an operation wholly or not at all, `in_steps` unless it is a single statement.

        With `flushed` it, and all before it, survives a power failure too. Once it is asked for, it is waited for:
        nobody is left in doubt about a write by a cancellation.
        """
        future = self.ask(operation, in_steps=in_steps, flushed=flushed)
        with anyio.CancelScope(shield=True):
            await future
        return future.result()

    def ask(
        self, operation: Callable[[sqlite3.Connection], T], *, in_steps: bool, flushed: bool = False
    ) -> asyncio.Future[T]:
        """Put an operation behind those that wait, as `do` does, and return at once."""
        if not self._is_open:
            raise StoreError("the store is closed")
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        self._queue.put(_Job(operation, future, loop, in_steps, flushed))
        return future

    async def close(self) -> None:
        """Perform what was asked for, and close the connection."""
        if self._is_open:
            self._is_open = False
            self._queue.put(None)
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(self._thread.join)

    def _run(self) -> None:
        is_last = False
        while not is_last:
            batch, is_last = self._take()
            if batch:
                self._perform(batch)
                _deliver(batch)
        self._checkpoints.close()
        with contextlib.suppress(sqlite3.Error):
            self._connection.close()

    def _take(self) -> tuple[list[_Job], bool]:
        job = self._queue.get()
        batch: list[_Job] = []
        while job is not None:
            batch.append(job)
            if len(batch) == MOST_AT_ONCE:
                return batch, False
            try:
                job = self._queue.get_nowait()
            except queue.Empty:
                return batch, False
        return batch, True

    def _perform(self, batch: Sequence[_Job]) -> None:
        try:
            self._commit(batch)
        except Exception as exc:  # noqa: BLE001 - whatever it is, somebody waits for the answer, and the thread goes on
            if len(batch) == 1 or is_locked(exc):
                for job in batch:
                    job.fail(self._explain(exc))
                return
            # WHY: a full disk undoes the whole transaction, also what would have fitted.
            for job in batch:
                self._perform([job])

    def _commit(self, batch: Sequence[_Job]) -> None:
        flushed = any(job.flushed for job in batch)
        if flushed:
            self._connection.execute("PRAGMA synchronous = FULL")
        try:
            self._connection.execute("BEGIN IMMEDIATE")
            for job in batch:
                self._attempt(job)
            self._appender.write(self._connection)
            self._connection.execute("COMMIT")
            self._checkpoints.want()
        except BaseException:
            self._roll_back()
            raise
        finally:
            if flushed:
                self._connection.execute("PRAGMA synchronous = NORMAL")

    def _attempt(self, job: _Job) -> None:
        # WHY: each statement lets the event loop have the interpreter, and waits to get it back; and a single one that
        # fails leaves nothing behind anyhow.
        if job.in_steps:
            self._connection.execute("SAVEPOINT job")
        try:
            job.outcome, job.error = job.operation(self._connection), None
        except Exception as exc:
            if not self._connection.in_transaction:
                raise
            if job.in_steps:
                self._connection.execute("ROLLBACK TO job")
            job.fail(self._explain(exc))
        if job.in_steps:
            self._connection.execute("RELEASE job")

    def _roll_back(self) -> None:
        self._appender.undo()
        if self._connection.in_transaction:
            with contextlib.suppress(sqlite3.Error):
                self._connection.execute("ROLLBACK")

    def _explain(self, error: Exception) -> Exception:
        if isinstance(error, Error):
            return error
        explained = explain(error, self._path) if isinstance(error, sqlite3.Error) else damaged(self._path, str(error))
        explained.__cause__ = error
        return explained


def _deliver(batch: Sequence[_Job]) -> None:
    """Wake each event loop once."""
    loops: dict[asyncio.AbstractEventLoop, list[_Job]] = {}
    for job in batch:
        loops.setdefault(job.loop, []).append(job)
    for loop, jobs in loops.items():
        # WHY: a loop that was closed has nobody waiting any more.
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(_settle, jobs)


def _settle(jobs: Sequence[_Job]) -> None:
    for job in jobs:
        if job.future.done():
            continue
        if job.error is None:
            job.future.set_result(job.outcome)
        else:
            job.future.set_exception(job.error)
