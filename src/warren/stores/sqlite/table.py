"""Tables of records: how fields become columns and back, and pages with their total, from one snapshot."""

from __future__ import annotations

import contextlib
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from warren.domain.records import Owner, Page
from warren.stores.encoding import dump_json, dump_text, load_json, load_mapping, load_text

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

T = TypeVar("T")

_MOST = (1 << 63) - 1


class Codec(NamedTuple):
    """How a value is stored. `load` raises ValueError, TypeError or KeyError for what `dump` never returns."""

    dump: Callable[[Any], Any]
    load: Callable[[Any], Any]


def _keep(value: Any) -> Any:
    return value


def optional(codec: Codec) -> Codec:
    """Store None as NULL."""
    return Codec(
        lambda value: None if value is None else codec.dump(value),
        lambda stored: None if stored is None else codec.load(stored),
    )


def word(kind: Callable[[str], Any]) -> Codec:
    """Store an enumeration by its value."""
    return Codec(str, kind)


PLAIN = Codec(_keep, _keep)
TEXT = Codec(dump_text, load_text)
TEXT_OR_NULL = optional(TEXT)
FLAG = Codec(int, bool)
LIST = Codec(lambda value: dump_json(list(value)), lambda stored: tuple(load_json(stored)))
PAIRS = Codec(dump_json, lambda stored: tuple((first, second) for first, second in load_json(stored)))
MAPPING = Codec(lambda value: dump_json(dict(value)), load_mapping)
OWNER = {"owner.tenant": TEXT, "owner.subject": TEXT}
"""The two columns of an owner."""


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


class Table(Generic[T]):
    """A table, and the fields of its records with their codecs. Conditions are constants of the code, as above."""

    def __init__(self, name: str, build: Callable[..., T], fields: Mapping[str, Codec]) -> None:
        self.columns = tuple(field.rpartition(".")[2] for field in fields)
        self._name = name
        self._build = build
        self._codecs = tuple(fields.values())
        self._get = attrgetter(*fields)
        self._is_owned = fields.keys() >= OWNER.keys()
        self._select = f"SELECT {', '.join(self.columns)} FROM {name} "  # noqa: S608 - as above

    def dump(self, record: T) -> tuple[Any, ...]:
        """Build the columns of a record."""
        return tuple(codec.dump(value) for codec, value in zip(self._codecs, self._get(record), strict=True))

    def load(self, row: Sequence[Any]) -> T:
        """Build a record from its columns. Raises ValueError, TypeError or KeyError for invalid ones."""
        columns = zip(self.columns, self._codecs, row, strict=True)
        fields = {name: codec.load(stored) for name, codec, stored in columns}
        if self._is_owned:
            fields["owner"] = Owner(fields.pop("tenant"), fields.pop("subject"))
        return self._build(**fields)

    def insert(self, connection: sqlite3.Connection, record: T, **more: Any) -> None:
        """Insert a record, with columns that no field has."""
        names = (*self.columns, *more)
        statement = f"INSERT INTO {self._name} ({', '.join(names)}) VALUES ({', '.join('?' * len(names))})"  # noqa: S608 - as above
        connection.execute(statement, (*self.dump(record), *more.values()))

    def keep(self, connection: sqlite3.Connection, record: T, sandbox_id: str) -> None:
        """Insert or replace a record of a sandbox, if that exists."""
        connection.execute(
            f"INSERT OR REPLACE INTO {self._name} ({', '.join(self.columns)}) "  # noqa: S608 - as above
            f"SELECT {', '.join('?' * len(self.columns))} WHERE EXISTS (SELECT 1 FROM sandboxes WHERE id = ?)",
            (*self.dump(record), dump_text(sandbox_id)),
        )

    def update(
        self, connection: sqlite3.Connection, record: T, where: str, *values: Any, fixed: Collection[str] = ()
    ) -> bool:
        """Replace the rows of a condition, but for the fixed columns; return whether there was one."""
        given = {name: value for name, value in zip(self.columns, self.dump(record), strict=True) if name not in fixed}
        statement = f"UPDATE {self._name} SET {', '.join(f'{name} = ?' for name in given)} WHERE {where}"  # noqa: S608 - as above
        return connection.execute(statement, (*given.values(), *values)).rowcount > 0

    def get(self, connection: sqlite3.Connection, where: str, *values: str) -> T | None:
        """Read the record of a condition on texts."""
        row = connection.execute(f"{self._select}WHERE {where}", tuple(map(dump_text, values))).fetchone()
        return None if row is None else self.load(row)

    def get_all(self, connection: sqlite3.Connection, rest: str = "", *values: Any) -> tuple[T, ...]:
        """Read records; `rest` is the rest of the statement."""
        return tuple(map(self.load, connection.execute(self._select + rest, values).fetchall()))

    def page(self, connection: sqlite3.Connection, filters: Filters, order: str, *, offset: int, limit: int) -> Page[T]:
        """Read a page of records."""
        columns = ", ".join(self.columns)
        return filters.page(
            connection, table=self._name, columns=columns, order=order, load=self.load, offset=offset, limit=limit
        )

    def remove(self, connection: sqlite3.Connection, record_id: str) -> bool:
        """Delete the record of an id; return whether there was one."""
        return connection.execute(f"DELETE FROM {self._name} WHERE id = ?", (dump_text(record_id),)).rowcount > 0  # noqa: S608 - as above
