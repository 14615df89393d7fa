"""Reads: a row by its key on the caller's thread, longer reads on another."""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

import anyio
from anyio import to_thread

from warren.domain.errors import StoreError
from warren.stores.sqlite.failure import damaged, explain

if TYPE_CHECKING:
    from collections.abc import Callable

    from warren.stores.sqlite.database import Database

P = ParamSpec("P")
T = TypeVar("T")

SCANS_AT_ONCE = 4


class Reader:
    """Read-only connections. In WAL mode they see the last commit and never wait for a writer."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._own = database.reader()
        self._idle: list[sqlite3.Connection] = []
        self._scans = anyio.CapacityLimiter(SCANS_AT_ONCE)
        self._is_open = True

    def look_up(self, read: Callable[Concatenate[sqlite3.Connection, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Read on this thread what takes no longer than a switch of threads."""
        self._check_open()
        return self._read(self._own, read, *args, **kwargs)

    async def scan(self, read: Callable[Concatenate[sqlite3.Connection, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Read on another thread."""
        self._check_open()

        def work() -> T:
            try:
                connection = self._idle.pop()
            except IndexError:
                connection = self._database.reader()
            try:
                return self._read(connection, read, *args, **kwargs)
            finally:
                if self._is_open:
                    self._idle.append(connection)
                else:
                    connection.close()

        return await to_thread.run_sync(work, limiter=self._scans)

    async def close(self) -> None:
        """Close every connection; one in use closes when it is done."""
        if not self._is_open:
            return
        self._is_open = False
        self._own.close()
        while self._idle:
            self._idle.pop().close()

    def _check_open(self) -> None:
        if not self._is_open:
            raise StoreError("the store is closed")

    def _read(self, connection: sqlite3.Connection, read: Callable[..., T], *args: Any, **kwargs: Any) -> T:
        try:
            return read(connection, *args, **kwargs)
        except sqlite3.Error as exc:
            raise explain(exc, self._database.path) from exc
        except (ValueError, TypeError, LookupError, RecursionError) as exc:
            raise damaged(self._database.path, str(exc)) from exc
