"""The audit chain in its table: appended to, read, and checked row by row.

Rule 1. A row's hash covers everything in it, its number, and the hash before; it is keyed by a secret outside the file.
Rule 2. The head has the number and hash of the last row under a seal, so rows that are cut off at the end are missed.
Rule 3. Who appends checks the seal first: a head that was set back must not be sealed again.
Rule 4. Head and rows are read and written in one transaction that no other process can come between.
"""

from __future__ import annotations

import hmac
import json
import sqlite3
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from warren.errors import Conflict, StoreError
from warren.records import FIRST_HASH, AuditEntry, AuditQuery, AuditRow, canonical_entry, chain_hash
from warren.stores.encoding import dump_text, load_mapping, load_text
from warren.stores.sqlite.paging import Filters, snapshot

if TYPE_CHECKING:
    from collections.abc import Sequence

    from warren.records import Page

_TEXTS = ("action", "outcome", "tenant", "subject", "key_id", "request_id", "address", "sandbox_id", "execution_id")
_COLUMNS = ", ".join(("seq", "at", *_TEXTS, "details", "previous", "hash"))
_INSERT = f"INSERT INTO audit ({_COLUMNS}) VALUES ({', '.join('?' * (len(_TEXTS) + 5))})"  # noqa: S608 - our own names
_SEALED = b"head"
"""No entry is this, as each is a JSON object."""


def begin(connection: sqlite3.Connection, secret: bytes) -> None:
    """Make the head of an empty chain, in a file that holds nothing yet: a head that was removed is not made again."""
    connection.execute(
        "INSERT INTO audit_head SELECT 1, 0, ?, ? WHERE NOT EXISTS (SELECT 1 FROM audit_head) "
        "AND NOT EXISTS (SELECT 1 FROM audit) AND NOT EXISTS (SELECT 1 FROM api_keys) "
        "AND NOT EXISTS (SELECT 1 FROM sandboxes)",
        (FIRST_HASH, chain_hash(secret, 0, FIRST_HASH, _SEALED)),
    )


def append(connection: sqlite3.Connection, secret: bytes, entries: Sequence[AuditEntry]) -> None:
    """Add rows. Raises StoreError when the head is not as this store left it."""
    seq, previous = _sealed_head(connection, secret)
    rows = []
    for entry in entries:
        seq += 1
        at, details = float(entry.at), json.dumps(dict(entry.details), sort_keys=True, separators=(",", ":"))
        # WHY: hashed is what will be read back, where 1 is 1.0 and every key of an object is text.
        same = replace(entry, at=at, details=json.loads(details))
        hashed = chain_hash(secret, seq, previous, canonical_entry(same))
        texts = (dump_text(getattr(entry, name)) for name in _TEXTS)
        rows.append((seq, at, *texts, details, previous, hashed))
        previous = hashed
    try:
        connection.executemany(_INSERT, rows)
    except sqlite3.IntegrityError as exc:
        raise StoreError(f"the audit record has a row {seq} already: run `warren audit verify`") from exc
    connection.execute(
        "UPDATE audit_head SET seq = ?, hash = ?, seal = ?", (seq, previous, chain_hash(secret, seq, previous, _SEALED))
    )


def _sealed_head(connection: sqlite3.Connection, secret: bytes) -> tuple[int, str]:
    head = _head(connection)
    if head is None or not _is_sealed(secret, head):
        raise StoreError(
            "the audit record was changed from outside, or audit.key was: nothing is added to it until a backup of "
            "both is restored; `warren audit verify` says more"
        )
    return head[0], head[1]


def _head(connection: sqlite3.Connection) -> tuple[Any, Any, Any] | None:
    head: tuple[Any, Any, Any] | None = connection.execute("SELECT seq, hash, seal FROM audit_head").fetchone()
    return head


def _is_sealed(secret: bytes, head: tuple[Any, Any, Any]) -> bool:
    seq, last, seal = head
    if not (isinstance(seq, int) and isinstance(last, str) and isinstance(seal, str) and last.isascii()):
        return False
    return hmac.compare_digest(chain_hash(secret, seq, last, _SEALED).encode(), seal.encode("utf-8", "replace"))


def page(connection: sqlite3.Connection, query: AuditQuery) -> Page[AuditRow]:
    """Return a page of rows, newest first."""
    filters = Filters()
    for name in ("tenant", "subject", "action", "sandbox_id", "execution_id", "request_id"):
        value = getattr(query, name)
        if value is not None:
            filters.add(f"{name} = ?", dump_text(value))
            if value and name in {"sandbox_id", "execution_id"}:
                filters.add(f"{name} <> ''")
    if query.since is not None:
        filters.add("at >= ?", query.since)
    if query.until is not None:
        filters.add("at < ?", query.until)
    # WHY: nothing is ever deleted, so the last number is the count; counting a million rows would take a while.
    count = "count(*)" if filters else "coalesce(max(seq), 0)"
    return filters.page(
        connection,
        table="audit",
        count=count,
        columns=_COLUMNS,
        order="seq DESC",
        load=load_row,
        offset=query.offset,
        limit=query.limit,
    )


def rows_after(
    connection: sqlite3.Connection, after: int, most: int, until: int | None = None
) -> list[tuple[Any, ...]]:
    """Return the next rows as they are stored, oldest first."""
    return connection.execute(
        f"SELECT {_COLUMNS} FROM audit WHERE seq > ? AND (? IS NULL OR seq <= ?) ORDER BY seq LIMIT ?",  # noqa: S608 - our own names
        (after, until, until, most),
    ).fetchall()


def load_row(stored: Sequence[Any]) -> AuditRow:
    """Build a row from its columns. Raises ValueError where they hold what this store never writes."""
    seq, at, *texts, details, previous, hashed = stored
    if not isinstance(at, float):
        raise ValueError("a time that is no number")  # noqa: TRY004 - one error for all that is wrong
    fields = dict(zip(_TEXTS, map(load_text, texts), strict=True))
    return AuditRow(
        seq, AuditEntry(at=at, details=load_mapping(details), **fields), load_text(previous), load_text(hashed)
    )


class Verification:
    """Checks a chain from its first row to where its head was when it began. Conflict names the first bad row."""

    def __init__(self, connection: sqlite3.Connection, secret: bytes) -> None:
        self._secret = secret
        with snapshot(connection):
            self._head = _head(connection)
            (self._last_seq,) = connection.execute("SELECT coalesce(max(seq), 0) FROM audit").fetchone()
        self.seq, self.hash = 0, FIRST_HASH

    def step(self, connection: sqlite3.Connection, most: int) -> bool:
        """Check the next rows; say whether there may be more."""
        stored = rows_after(connection, self.seq, most, self._last_seq)
        for row in stored:
            self._check(connection, row)
        return len(stored) == most

    def _check(self, connection: sqlite3.Connection, stored: tuple[Any, ...]) -> None:
        if stored[0] != self.seq + 1:
            raise Conflict(f"row {self.seq + 1} of the audit record is missing")
        try:
            row = load_row(stored)
        except (ValueError, TypeError, RecursionError):
            raise Conflict(f"row {self.seq + 1} of the audit record was edited") from None
        entry = canonical_entry(row.entry)
        if not self._is_hash(row.hash, row.seq, row.previous, entry):
            origin = self._origin(connection, row, entry)
            if origin is not None:
                raise Conflict(f"row {row.seq} of the audit record was moved: it was row {origin}")
            other = ", or audit.key is not the one it was made with" if row.seq == 1 else ""
            raise Conflict(f"row {row.seq} of the audit record was edited{other}")
        if row.previous != self.hash:
            raise Conflict(f"row {row.seq} of the audit record does not follow the row before it, which was replaced")
        self.seq, self.hash = row.seq, row.hash

    def _is_hash(self, hashed: str, seq: int, previous: str, entry: bytes) -> bool:
        return previous.isascii() and hashed == chain_hash(self._secret, seq, previous, entry)

    def _origin(self, connection: sqlite3.Connection, row: AuditRow, entry: bytes) -> int | None:
        places = connection.execute("SELECT seq + 1 FROM audit WHERE hash = ?", (dump_text(row.previous),)).fetchall()
        if row.previous == FIRST_HASH:
            places.append((1,))
        return next((seq for (seq,) in places if self._is_hash(row.hash, seq, row.previous, entry)), None)

    def finish(self) -> tuple[int, str]:
        """Compare the last row with the head, and return its number and hash."""
        if self._head is None:
            raise Conflict("the head of the audit record is missing, so rows may have been cut off at its end")
        seq, hashed, _ = self._head
        if not _is_sealed(self._secret, self._head):
            raise Conflict("the head of the audit record was edited, so rows may have been cut off at its end")
        if self.seq < seq:
            raise Conflict(
                f"row {self.seq + 1} of the audit record is missing: it was cut off at its end, {seq} rows long"
            )
        if self.seq > seq:
            raise Conflict(f"row {seq + 1} of the audit record was added by somebody else")
        if self.hash != hashed:
            raise Conflict(f"row {seq} of the audit record was replaced")
        return self.seq, self.hash
