"""Records of egress connections: in the journal while they are open, in the audit record when they end."""

from __future__ import annotations

import contextlib
import logging
import time
from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from warren.domain.errors import StoreError
from warren.domain.records import AuditQuery, Caller, Owner, Principal

if TYPE_CHECKING:
    from warren.core.audit.log import Audit
    from warren.core.egress.connection import EgressConnection
    from warren.core.egress.journal import EgressJournal
    from warren.stores.base import Store

_BEFORE_S = 10.0
"""The audit entry of a connection may be this much older than its last journal write: the system clock may be set."""
_PAGE = 500
_KEPT = (
    *("host", "port", "kind", "verdict", "rule", "address", "bytes_out", "bytes_in", "duration_ms", "requests"),
    *("secrets", "server_name", "via"),
)

_log = logging.getLogger(__name__)


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
