"""Table of the audit chain: appended to, read, and verified row by row.

Rule 1. The hash of a row covers its content, its number and the hash before; its key is a secret outside the file.
Rule 2. The head has number and hash of the last row under a seal, so that rows cut off at the end are missed.
Rule 3. An append verifies the seal first: a head that was set back must not be sealed again.
Rule 4. Head and rows are read and written in one transaction that excludes all other processes.
Rule 5. Old rows may be cut off at the beginning. The start then has number and hash of the last of them under its own
        seal, so that a cut without the secret is detected; the rest is a chain as before.
"""

from __future__ import annotations

import hmac
import itertools
import json
import sqlite3
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from warren.domain.errors import Conflict, StoreError
from warren.domain.records import FIRST_HASH, AuditEntry, AuditQuery, AuditRow, canonical_entry, chain_hash
from warren.stores.encoding import dump_text, load_mapping, load_text
from warren.stores.sqlite.table import Filters, snapshot

if TYPE_CHECKING:
    from collections.abc import Sequence

    from warren.domain.records import Page

_TEXTS = ("action", "outcome", "tenant", "subject", "key_id", "request_id", "address", "sandbox_id", "execution_id")
_COLUMNS = ", ".join(("seq", "at", *_TEXTS, "details", "previous", "hash"))
_INSERT = f"INSERT INTO audit ({_COLUMNS}) VALUES ({', '.join('?' * (len(_TEXTS) + 5))})"  # noqa: S608 - our own names
FAR_ROWS = 1000
_MOVE_HEAD = "UPDATE audit_head SET seq = ?, hash = ?, seal = ? WHERE seq = ? AND hash = ? AND seal = ?"
_encode = json.JSONEncoder(separators=(",", ":")).encode
_SEALED, _CUT = b"head", b"start"
"""Not valid entries: those are JSON objects."""


def begin(connection: sqlite3.Connection, secret: bytes) -> bool:
    """Seal the head of an empty chain; return whether it is empty."""
    if connection.execute("SELECT 1 FROM audit UNION ALL SELECT 1 FROM audit_head WHERE seq <> 0").fetchone():
        return False
    connection.execute(
        "INSERT INTO audit_head VALUES (1, 0, ?, ?) ON CONFLICT (one) DO UPDATE SET seal = excluded.seal",
        (FIRST_HASH, chain_hash(secret, 0, FIRST_HASH, _SEALED)),
    )
    return True


def is_sealed(connection: sqlite3.Connection, secret: bytes) -> bool:
    """Whether a store with this secret sealed the head."""
    head = _head(connection)
    return head is not None and _is_seal(secret, head)


class Appender:
    """Appends rows for the writer thread: collected during a transaction, written at its end."""

    def __init__(self, secret: bytes) -> None:
        self._secret = secret
        self._waiting: list[AuditEntry] = []
        self._head: tuple[int, str, str] | None = None
        """The last head written, unless another process has written since."""

    def add(self, _connection: sqlite3.Connection, entries: Sequence[AuditEntry]) -> None:
        """Collect entries for the current transaction."""
        self._waiting.extend(entries)

    def write(self, connection: sqlite3.Connection) -> None:
        """Write the collected entries. Raises StoreError when the head was tampered with."""
        if not self._waiting:
            return
        head = self._head
        if head is None or not self._write_after(connection, head):
            self._write_after(connection, self._sealed_head(connection))
        self._waiting.clear()

    def undo(self) -> None:
        """Drop the collected entries: their transaction was rolled back."""
        self._waiting.clear()
        self._head = None

    def _write_after(self, connection: sqlite3.Connection, head: tuple[int, str, str]) -> bool:
        rows = _chained(self._secret, head[0], head[1], self._waiting)
        seq, hashed = rows[-1][0], rows[-1][-1]
        new_head = seq, hashed, chain_hash(self._secret, seq, hashed, _SEALED)
        if not connection.execute(_MOVE_HEAD, (*new_head, *head)).rowcount:
            return False
        try:
            connection.executemany(_INSERT, rows)
        except sqlite3.IntegrityError as exc:
            raise StoreError(f"the audit record has a row {head[0] + 1} already: run `warren audit verify`") from exc
        self._head = new_head
        return True

    def _sealed_head(self, connection: sqlite3.Connection) -> tuple[int, str, str]:
        head = _head(connection)
        if head is None or not _is_seal(self._secret, head):
            raise StoreError(
                "the audit record was changed from outside, or audit.key was: nothing is added to it until a backup "
                "of both is restored; `warren audit verify` says more"
            )
        return head


def normal(entry: AuditEntry) -> AuditEntry:
    """Return an entry as it will be read back, with 1.0 for 1 and string keys: this form is hashed."""
    return replace(entry, at=float(entry.at), details=json.loads(_encode(dict(entry.details))))


def _chained(secret: bytes, seq: int, previous: str, entries: Sequence[AuditEntry]) -> list[tuple[Any, ...]]:
    rows: list[tuple[Any, ...]] = []
    for entry in entries:
        seq += 1
        hashed = chain_hash(secret, seq, previous, canonical_entry(entry))
        texts = [dump_text(getattr(entry, name)) for name in _TEXTS]
        rows.append((seq, entry.at, *texts, _encode(entry.details), previous, hashed))
        previous = hashed
    return rows


def _head(connection: sqlite3.Connection) -> tuple[Any, Any, Any] | None:
    head: tuple[Any, Any, Any] | None = connection.execute("SELECT seq, hash, seal FROM audit_head").fetchone()
    return head


def _is_seal(secret: bytes, head: tuple[Any, Any, Any], what: bytes = _SEALED) -> bool:
    seq, last, seal = head
    if not (isinstance(seq, int) and isinstance(last, str) and isinstance(seal, str) and last.isascii()):
        return False
    return hmac.compare_digest(chain_hash(secret, seq, last, what).encode(), seal.encode("utf-8", "replace"))


def start(connection: sqlite3.Connection, secret: bytes) -> tuple[int, str]:
    """Return number and hash of the last row that was cut off. Raises Conflict when the start was tampered with."""
    cut: tuple[int, str, Any] | None = connection.execute("SELECT seq, hash, seal FROM audit_start").fetchone()
    if cut is None or not (cut[:2] == (0, FIRST_HASH) or _is_seal(secret, cut, _CUT)):
        raise Conflict("the start of the audit record was edited, so rows may have been cut off at its beginning")
    return cut[0], cut[1]


def prune(connection: sqlite3.Connection, secret: bytes, before: float, most: int) -> tuple[int, int, str] | None:
    """Cut off the oldest rows that are from before a time; never the last row."""
    cut, _ = start(connection, secret)
    rows = connection.execute("SELECT seq, hash, at FROM audit ORDER BY seq LIMIT ?", (most + 1,)).fetchall()
    old = list(itertools.takewhile(lambda row: row[2] < before, rows[:-1]))
    if not old:
        return None
    seq, hashed, _ = old[-1]
    seal = chain_hash(secret, seq, hashed, _CUT)
    connection.execute("UPDATE audit_start SET seq = ?, hash = ?, seal = ?", (seq, hashed, seal))
    connection.execute("DELETE FROM audit WHERE seq <= ?", (seq,))
    return cut + 1, seq, hashed


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
    # WHY: only the oldest rows are ever deleted, so the last number gives the count; counting a million rows is slow.
    count = "count(*)" if filters else "coalesce(max(seq) - (SELECT seq FROM audit_start), 0)"
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
    """Return the next rows as stored, oldest first."""
    return connection.execute(
        f"SELECT {_COLUMNS} FROM audit WHERE seq > ? AND (? IS NULL OR seq <= ?) ORDER BY seq LIMIT ?",  # noqa: S608 - our own names
        (after, until, until, most),
    ).fetchall()


def load_row(stored: Sequence[Any]) -> AuditRow:
    """Build a row from its columns. Raises ValueError for values that this store never writes."""
    seq, at, *texts, details, previous, hashed = stored
    if not isinstance(at, float):
        raise ValueError("a time that is no number")  # noqa: TRY004 - one error for all that is wrong
    fields = dict(zip(_TEXTS, map(load_text, texts), strict=True))
    return AuditRow(
        seq, AuditEntry(at=at, details=load_mapping(details), **fields), load_text(previous), load_text(hashed)
    )


class Verification:
    """Verifies a chain from its start to its head of the beginning. Conflict names the first bad row."""

    def __init__(self, connection: sqlite3.Connection, secret: bytes) -> None:
        self._secret = secret
        with snapshot(connection):
            self._head = _head(connection)
            (self._last_seq,) = connection.execute("SELECT coalesce(max(seq), 0) FROM audit").fetchone()
            self.seq, self.hash = start(connection, secret)

    def step(self, connection: sqlite3.Connection, most: int) -> bool:
        """Verify the next rows; return whether there may be more."""
        with snapshot(connection):
            cut = start(connection, self._secret)
            if cut[0] > self.seq:
                # The service runs on, and has cut off more rows since.
                self.seq, self.hash = cut
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
        """Return the original number of a row: after the row that it names, or a little later where that is gone."""
        before = connection.execute("SELECT seq + 1 FROM audit WHERE hash = ?", (dump_text(row.previous),)).fetchall()
        places = (1, *(seq for (seq,) in before), *range(row.seq + 1, row.seq + FAR_ROWS))
        return next((seq for seq in places if self._is_hash(row.hash, seq, row.previous, entry)), None)

    def finish(self) -> tuple[int, str]:
        """Compare the last row with the head, and return its number and hash."""
        if self._head is None:
            raise Conflict("the head of the audit record is missing, so rows may have been cut off at its end")
        seq, hashed, _ = self._head
        if not _is_seal(self._secret, self._head):
            raise Conflict("the head of the audit record was edited, so rows may have been cut off at its end")
        if self.seq < seq:
            raise Conflict(
                f"row {self.seq + 1} of the audit record is missing: it was cut off at its end, {seq} rows long"
            )
        if self.seq > seq:
            raise Conflict(f"row {seq + 1} of the audit record was added without the secret of this store")
        if self.hash != hashed:
            raise Conflict(f"row {seq} of the audit record was replaced")
        return self.seq, self.hash
