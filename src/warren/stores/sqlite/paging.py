"""A page of a table and its total, from one snapshot."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, TypeVar

from warren.domain.records import Page

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Iterator

T = TypeVar("T")

_MOST = (1 << 63) - 1


@contextlib.contextmanager
def snapshot(connection: sqlite3.Connection) -> Iterator[None]:
    """Read everything within from one snapshot."""
    connection.execute("BEGIN")
    try:
        yield
    finally:
        connection.execute("ROLLBACK")


class Filters:
    """Conditions joined by AND. They are constants of the code; values are only ever bound."""

    def __init__(self) -> None:
        self._conditions: list[str] = []
        self._values: list[Any] = []

    def __bool__(self) -> bool:
        return bool(self._conditions)

    def add(self, condition: str, *values: Any) -> None:
        """Add a condition."""
        self._conditions.append(condition)
        self._values.extend(values)

    def page(
        self,
        connection: sqlite3.Connection,
        *,
        table: str,
        columns: str,
        order: str,
        count: str = "count(*)",
        load: Callable[[tuple[Any, ...]], T],
        offset: int,
        limit: int,
    ) -> Page[T]:
        """Read the page at an offset."""
        where = f" WHERE {' AND '.join(self._conditions)}" if self else ""
        with snapshot(connection):
            (total,) = connection.execute(f"SELECT {count} FROM {table}{where}", self._values).fetchone()  # noqa: S608 - our own words
            rows = connection.execute(
                f"SELECT {columns} FROM {table}{where} ORDER BY {order} LIMIT ? OFFSET ?",  # noqa: S608 - as above
                (*self._values, max(0, min(limit, _MOST)), max(0, min(offset, _MOST))),
            ).fetchall()
        return Page(tuple(map(load, rows)), total, offset, limit)
