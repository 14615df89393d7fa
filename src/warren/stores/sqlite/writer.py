"""Writer of the store: queued operations are committed together, and one that fails does not affect the others.

A commit goes to the log in memory, in about 0.1 ms; a switch to a thread and back costs several times that. So it is
done in the thread of the event loop, at the end of its turn. Large batches, and those that wait for the disk or for
another process, go to a thread; while that has work, all operations go to it.
"""

from __future__ import annotations

import asyncio
import contextlib
import queue
import sqlite3
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import anyio

from warren.domain.errors import Error, StoreError
from warren.stores.sqlite.failure import damaged, explain, is_locked

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from warren.stores.sqlite.audit import Appender

T = TypeVar("T")

MOST_AT_ONCE = 256
MOST_HERE = 16
"""Operations that are committed in the thread of the event loop: it must not block for more than a few milliseconds."""
EVERY_S = 1.0
"""Between two checkpoints."""


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
    """Performs operations on its connection in their order."""

    def __init__(
        self,
        connection: sqlite3.Connection,
        path: str,
        appender: Appender,
        checkpoints: Checkpoints,
        *,
        lock_wait_s: float,
    ) -> None:
        self._connection = connection
        self._path = path
        self._appender = appender
        self._checkpoints = checkpoints
        self._lock_wait_ms = round(lock_wait_s * 1000)
        self._set_wait(0)
        self._loop: asyncio.AbstractEventLoop | None = None
        """The first event loop that wrote. Loops of other threads are served by the writer thread."""
        self._asked: list[_Job] = []
        self._handed_over = 0
        self._turn = threading.Lock()
        self._queue: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._is_open = True
        # WHY: a daemon, so that a process that fails before it closes the store still ends; acknowledged writes are in
        # the file by then.
        self._thread = threading.Thread(target=self._run, name="warren-store", daemon=True)
        self._thread.start()

    async def do(
        self, operation: Callable[[sqlite3.Connection], T], *, in_steps: bool = True, flushed: bool = False
    ) -> T:
        """Perform an operation atomically, `in_steps` unless it is a single statement.

        With `flushed`, it and all before it survive a power failure too. A cancellation does not interrupt the wait:
        the caller always learns whether a write was done.
        """
        future = self.ask(operation, in_steps=in_steps, flushed=flushed)
        with anyio.CancelScope(shield=True):
            await future
        return future.result()

    def ask(
        self, operation: Callable[[sqlite3.Connection], T], *, in_steps: bool, flushed: bool = False
    ) -> asyncio.Future[T]:
        """Queue an operation as `do` does, and return at once."""
        if not self._is_open:
            raise StoreError("the store is closed")
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        job = _Job(operation, future, loop, in_steps, flushed)
        if self._loop is None:
            self._loop = loop
        if loop is not self._loop:
            self._queue.put(job)
            return future
        self._asked.append(job)
        if len(self._asked) == 1:
            loop.call_soon(self._write_asked)
        return future

    async def close(self) -> None:
        """Perform the queued operations, and close the connection."""
        if self._is_open:
            self._is_open = False
            self._write_asked()
            self._queue.put(None)
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(self._thread.join)

    def _write_asked(self) -> None:
        batch, self._asked = self._asked, []
        if not batch:
            return
        is_short = len(batch) <= MOST_HERE and not any(job.flushed for job in batch)
        if is_short and not self._handed_over and self._write_here(batch):
            _settle(batch)
            return
        self._handed_over += len(batch)
        for job in batch:
            self._queue.put(job)

    def _write_here(self, batch: Sequence[_Job]) -> bool:
        """Commit in the thread of the event loop; False, with nothing done, when that would have to wait."""
        if not self._turn.acquire(blocking=False):
            return False
        try:
            return self._perform(batch)
        finally:
            self._turn.release()

    def _run(self) -> None:
        is_last = False
        while not is_last:
            batch, is_last = self._take()
            if batch:
                with self._turn:
                    self._perform_waiting(batch)
                self._deliver(batch)
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

    def _perform_waiting(self, batch: Sequence[_Job]) -> None:
        self._set_wait(self._lock_wait_ms)
        try:
            if not self._perform(batch):
                locked = sqlite3.OperationalError("locked")
                locked.sqlite_errorcode = sqlite3.SQLITE_BUSY
                for job in batch:
                    job.fail(self._explain(locked))
        finally:
            self._set_wait(0)

    def _perform(self, batch: Sequence[_Job]) -> bool:
        """Commit together, or one by one where that fails; False when another process has the file."""
        try:
            self._commit(batch)
        except Exception as exc:  # noqa: BLE001 - the caller gets it, and the thread continues
            if is_locked(exc):
                return False
            if len(batch) == 1:
                batch[0].fail(self._explain(exc))
                return True
            # WHY: a full disk rolls back the whole transaction, including what would have fitted.
            for at, job in enumerate(batch):
                if not self._perform([job]):
                    for late in batch[at:]:
                        late.fail(self._explain(exc))
                    break
        return True

    def _set_wait(self, milliseconds: int) -> None:
        self._connection.execute(f"PRAGMA busy_timeout = {milliseconds}")

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
        # WHY: each statement releases the interpreter to the event loop and waits to get it back; a single statement
        # that fails leaves nothing behind anyway.
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

    def _deliver(self, batch: Sequence[_Job]) -> None:
        """Wake each event loop once."""
        loops: dict[asyncio.AbstractEventLoop, list[_Job]] = {}
        for job in batch:
            loops.setdefault(job.loop, []).append(job)
        for loop, jobs in loops.items():
            # WHY: a closed loop has no waiters any more.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(self._take_back if loop is self._loop else _settle, jobs)

    def _take_back(self, jobs: Sequence[_Job]) -> None:
        self._handed_over -= len(jobs)
        _settle(jobs)

    def _explain(self, error: Exception) -> Exception:
        if isinstance(error, Error):
            return error
        explained = explain(error, self._path) if isinstance(error, sqlite3.Error) else damaged(self._path, str(error))
        explained.__cause__ = error
        return explained


def _settle(jobs: Sequence[_Job]) -> None:
    for job in jobs:
        if job.future.done():
            continue
        if job.error is None:
            job.future.set_result(job.outcome)
        else:
            job.future.set_exception(job.error)


class Checkpoints:
    """WAL checkpoints, in a thread with its own connection, about once a second while the log has content.

    So a write never waits for the disk, and a power failure loses about the last second.
    """

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._wanted = threading.Event()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="warren-store-log", daemon=True)
        self._thread.start()

    def want(self) -> None:
        """Announce that something was written."""
        if not self._wanted.is_set():
            self._wanted.set()

    def close(self) -> None:
        """End the thread, and close its connection."""
        self._closing.set()
        self._wanted.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._closing.is_set():
            self._wanted.wait()
            if self._closing.wait(EVERY_S):
                break
            self._wanted.clear()
            # WHY: a full or missing disk is reported where a caller waits for a response; the log keeps what was
            # written.
            with contextlib.suppress(sqlite3.Error):
                self._connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
        with contextlib.suppress(sqlite3.Error):
            self._connection.close()
