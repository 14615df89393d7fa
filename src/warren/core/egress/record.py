"""Records of egress connections: in the journal while they are open, in the audit record when they end."""

from __future__ import annotations

import contextlib
import logging
import os
import time
import weakref
from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import orjson

from warren.domain.errors import StoreError
from warren.domain.records import AuditQuery, Caller, Owner, Principal

if TYPE_CHECKING:
    from warren.core.audit.log import Audit
    from warren.core.egress.connection import EgressConnection
    from warren.stores.base import Store

_BEFORE_S = 10.0
"""The audit entry of a connection may be this much older than its last journal write: the system clock may be set."""
_PAGE = 500
_KEPT = (
    *("host", "port", "kind", "verdict", "rule", "address", "bytes_out", "bytes_in", "duration_ms", "requests"),
    *("secrets", "server_name", "via"),
)

_log = logging.getLogger(__name__)
_SLOT = 2048
"""Divides a page of memory, so that a write is complete or absent."""
_TEXTS = ((255, 255), (60, 255), (60, 60))
"""Characters kept of a text and of an identity; the next pair where the entry exceeds a slot."""
_WHOSE = frozenset({"tenant", "subject"})
"""Cut last: a truncated identity would name another principal."""
_MAX_BYTES = 64 << 20


class EgressRecord:
    """Writes both, and recovers what a killed service left in the journal."""

    def __init__(self, audit: Audit, journal: EgressJournal) -> None:
        self._audit = audit
        self._journal = journal
        self._settling: deque[tuple[int, int]] = deque()
        """Journal slots to clear, with the number of the audit entry that replaces each."""

    def hold(self, connection: EgressConnection, *, allowed: bool = True, count: int = 0) -> None:
        """Write the current state of a connection to the journal. Raises StoreError."""
        self.settle()
        details = _describe(connection, allowed=allowed)
        entry: dict[str, Any] = {
            "id": connection.id,
            "sandbox_id": connection.sandbox_id,
            "tenant": connection.owner.tenant,
            "subject": connection.owner.subject,
            "seen": time.time(),
            "count": count,
            **details,
            "secrets": ",".join(connection.secrets),
        }
        connection.slot = self._journal.put(connection.slot, entry)

    def renew(self, connection: EgressConnection, *, allowed: bool = True, count: int = 0) -> None:
        """Write the current state to the journal; a failure is ignored."""
        with contextlib.suppress(StoreError):
            self.hold(connection, allowed=allowed, count=count)

    def note(self, connection: EgressConnection, action: str, *, allowed: bool, **more: Any) -> None:
        """Write an audit entry."""
        details = _describe(connection, allowed=allowed)
        outcome = "open" if action == "egress.open" else connection.outcome
        self._note(
            connection.owner, action, outcome, connection.sandbox_id, connection=connection.id, **details, **more
        )

    def let_go(self, connection: EgressConnection) -> None:
        """Release the journal slot once the audit record has all entries so far."""
        if connection.slot is not None:
            self._settling.append((self._audit.noted, connection.slot))
            connection.slot = None

    def settle(self) -> None:
        """Clear the slots whose audit entries are on disk."""
        while self._settling and self._settling[0][0] <= self._audit.written:
            self._journal.clear(self._settling.popleft()[1])

    async def recover(self, store: Store) -> None:
        """Audit the connections that a killed service left open. Raises StoreError."""
        found = self._journal.read()
        for slot, entry in found:
            try:
                await self._recover(store, entry)
            except (KeyError, TypeError, ValueError):
                _log.warning("egress.journal_unreadable", extra={"slot": slot})
            self._settling.append((self._audit.noted, slot))

    async def _recover(self, store: Store, entry: dict[str, Any]) -> None:
        connection, sandbox_id, count = str(entry["id"]), str(entry["sandbox_id"]), int(entry["count"])
        details = {name: entry[name] for name in _KEPT if entry.get(name) not in {None, ""}}
        if "secrets" in details:
            details["secrets"] = details["secrets"].split(",")
        who = Owner(str(entry["tenant"]), str(entry["subject"]))
        known = await _find(store, sandbox_id, connection, float(entry["seen"]) - _BEFORE_S)
        outcome = "refused" if entry["verdict"] == "refused" else "lost"
        if not known:
            self._note(who, "egress.connect", outcome, sandbox_id, connection=connection, **details)
        if count and not any("count" in row for row in known):
            self._note(who, "egress.connect", outcome, sandbox_id, connection=connection, **details, count=count)

    def _note(self, owner: Owner, action: str, outcome: str, sandbox_id: str, **details: Any) -> None:
        caller = Caller(principal=Principal(subject=owner.subject, tenant=owner.tenant), request_id="")
        self._audit.note(caller, action, outcome=outcome, sandbox_id=sandbox_id, **details)


def _describe(connection: EgressConnection, *, allowed: bool) -> dict[str, Any]:
    asked = connection.asked
    details: dict[str, Any] = {
        "host": asked.host[:255],
        "port": asked.port,
        "kind": asked.kind,
        "verdict": "allowed" if allowed else "refused",
        "rule": connection.rule,
    }
    if allowed:
        details |= {"address": connection.address, "bytes_out": connection.sent, "bytes_in": connection.received}
        details["duration_ms"] = round((time.monotonic() - connection.began) * 1000)
    if connection.via:
        details["via"] = connection.via
    if connection.requests:
        details["requests"] = connection.requests
    if connection.secrets:
        details["secrets"] = list(connection.secrets)
    if connection.server_name is not None:
        details["server_name"] = connection.server_name[:255]
    return details


async def _find(store: Store, sandbox_id: str, connection: str, since: float) -> list[dict[str, Any]]:
    """Return the details of all audit entries of a connection."""
    found: list[dict[str, Any]] = []
    query = AuditQuery(sandbox_id=sandbox_id, action="egress.connect", since=since, limit=_PAGE)
    while True:
        page = await store.audit(query)
        found += [dict(row.entry.details) for row in page.items if row.entry.details.get("connection") == connection]
        if len(page.items) < _PAGE:
            return found
        query = replace(query, offset=query.offset + _PAGE)


class EgressJournal:
    """A file of the open connections, so that a service that was killed can audit them when it starts again.

    1. Each connection has a slot, written in place before its first byte leaves, without fsync: written pages survive
       the process. The slot is cleared once the audit record has the connection.
    2. A slot may be torn. Slots that cannot be parsed are skipped.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._file: int | None = None
        self._free: list[int] = []
        self._slots = 0

    def put(self, slot: int | None, entry: dict[str, Any]) -> int:
        """Write an entry to its slot; without one, to a new slot. Returns the slot. Raises StoreError."""
        raw = _render(entry)
        at = self._take() if slot is None else slot
        try:
            if self._file is None:
                self._open()
            assert self._file is not None
            os.pwrite(self._file, raw, at * _SLOT)
        except OSError as exc:
            if slot is None:
                self._free.append(at)
            raise StoreError(f"nothing is done that cannot be recorded: {exc.strerror}") from exc
        return at

    def clear(self, slot: int) -> None:
        """Empty a slot."""
        assert self._file is not None
        with contextlib.suppress(OSError):
            os.pwrite(self._file, b"\0", slot * _SLOT)
        self._free.append(slot)

    def read(self) -> list[tuple[int, dict[str, Any]]]:
        """Return what the last service left, with the slots; the caller clears them. Raises StoreError."""
        if not os.path.exists(self._path):
            return []
        try:
            self._open()
            assert self._file is not None
            raw = os.pread(self._file, min(os.fstat(self._file).st_size, _MAX_BYTES), 0)
        except OSError as exc:
            raise StoreError(f"{self._path} cannot be read: {exc.strerror}") from exc
        found = []
        self._slots = (len(raw) + _SLOT - 1) // _SLOT
        for slot in range(self._slots):
            entry = _parse(raw[slot * _SLOT : (slot + 1) * _SLOT])
            if entry is None:
                self._free.append(slot)
            else:
                found.append((slot, entry))
        return found

    def _open(self) -> None:
        os.makedirs(os.path.dirname(self._path), exist_ok=True)
        self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        weakref.finalize(self, os.close, self._file)

    def _take(self) -> int:
        if self._free:
            return self._free.pop()
        self._slots += 1
        return self._slots - 1


def _render(entry: dict[str, Any]) -> bytes:
    raw = b""
    for most, whose in _TEXTS:
        raw = orjson.dumps(
            {
                name: value[: whose if name in _WHOSE else most] if isinstance(value, str) else value
                for name, value in entry.items()
            }
        )
        if len(raw) <= _SLOT:
            break
    return raw[:_SLOT] + bytes(_SLOT - len(raw))


def _parse(raw: bytes) -> dict[str, Any] | None:
    try:
        entry = orjson.loads(raw.rstrip(b"\0"))
    except orjson.JSONDecodeError:
        return None
    return entry if isinstance(entry, dict) else None
