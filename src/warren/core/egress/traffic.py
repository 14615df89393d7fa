"""Egress traffic: every connection is counted, limited and recorded.

A connection has one `egress.connect` in the audit record, at its end; after 2 s it also has an `egress.open`, so that
long connections are visible. Equal refusals within a minute are one entry with a count. Until the audit record has an
entry, the journal has it: see `core/egress/record.py`.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from warren.core.egress.connection import EgressConnection, EgressUsage

if TYPE_CHECKING:
    from collections.abc import Iterable

    from anyio import CancelScope

    from warren.core.egress.connection import Asked
    from warren.core.egress.record import EgressRecord
    from warren.core.policy.policy import EgressLimits
    from warren.core.telemetry.counters import Counters
    from warren.domain.egress import Verdict
    from warren.domain.records import Owner

OPEN_S = 2.0
"""A connection that is open for this long gets an `egress.open` entry."""
REFUSALS_S = 60.0
_MOST_REFUSALS = 4096


class _Refusals:
    """Equal refusals within one minute."""

    __slots__ = ("connection", "count", "until")

    def __init__(self, connection: EgressConnection) -> None:
        self.connection = connection
        self.count = 0
        self.until = time.monotonic() + REFUSALS_S


class Traffic:
    """Open connections. The proxy calls `collect` every few seconds, and `collect(now=True)` at shutdown."""

    def __init__(self, record: EgressRecord, observer: Counters, limits: EgressLimits) -> None:
        self.limits = limits
        self.live: dict[str, set[EgressConnection]] = {}
        """By sandbox."""
        self.record = record
        self._observer = observer
        self._looked_at = 0.0
        self._usage: dict[str, EgressUsage] = {}
        self._refusals: dict[tuple[str, str, int, str], _Refusals] = {}

    def begin(self, sandbox_id: str, owner: Owner, asked: Asked, scope: CancelScope) -> EgressConnection:
        """Begin to count a connection; `end` or `refuse` follows."""
        connection = EgressConnection(sandbox_id, owner, asked, self._usage_of(sandbox_id), scope)
        self.live.setdefault(sandbox_id, set()).add(connection)
        return connection

    def may_begin(self, sandbox_id: str) -> bool:
        """Count a new connection of a sandbox; False above the rate."""
        if self._usage_of(sandbox_id).take_connection():
            return True
        self._observer.rejected("egress_rate")
        return False

    def end(self, connection: EgressConnection) -> None:
        """Record the end of a connection."""
        self._forget(connection)
        self._observer.connection_ended(connection.sent, connection.received)
        self.record.note(connection, "egress.connect", allowed=True)
        self.record.let_go(connection)

    def refuse(self, connection: EgressConnection, verdict: Verdict) -> None:
        """Record a refusal; equal refusals within a minute are counted in one entry."""
        self._forget(connection)
        self._observer.connection_refused()
        connection.outcome, connection.rule = "refused", verdict.rule
        asked = connection.asked
        key = (connection.sandbox_id, asked.host, asked.port, verdict.rule)
        known = self._refusals.get(key)
        if known is not None:
            known.count += 1
            self.record.renew(known.connection, allowed=False, count=known.count)
            self.record.let_go(connection)
            return
        if len(self._refusals) >= _MOST_REFUSALS:
            self.collect(now=True)
        self._refusals[key] = _Refusals(connection)
        self.record.renew(connection, allowed=False)
        self.record.note(connection, "egress.connect", allowed=False)

    def all(self) -> Iterable[EgressConnection]:
        """Return the open connections."""
        return [connection for connections in self.live.values() for connection in connections]

    def collect(self, *, now: bool = False) -> None:
        """Record long connections and the refusals of the last minute; close idle connections."""
        at = time.monotonic()
        for connection in self.all():
            if not connection.is_noted and at - connection.began >= OPEN_S and connection.address:
                connection.is_noted = True
                self.record.note(connection, "egress.open", allowed=True)
            if connection.slot is not None and connection.moved_at >= self._looked_at:
                self.record.renew(connection)
            if at - connection.moved_at > self.limits.idle_s:
                connection.cut("idle", f"nothing passed for {self.limits.idle_s:g} s")
        for key, refusals in list(self._refusals.items()):
            if now or at >= refusals.until:
                del self._refusals[key]
                if refusals.count:
                    self.record.note(refusals.connection, "egress.connect", allowed=False, count=refusals.count)
                self.record.let_go(refusals.connection)
        self.record.settle()
        self._looked_at = at
        self._usage = {key: usage for key, usage in self._usage.items() if key in self.live or not usage.is_over}

    def _usage_of(self, sandbox_id: str) -> EgressUsage:
        usage = self._usage.get(sandbox_id)
        if usage is None:
            usage = self._usage[sandbox_id] = EgressUsage(self.limits)
        return usage

    def _forget(self, connection: EgressConnection) -> None:
        connections = self.live.get(connection.sandbox_id)
        if connections is not None:
            connections.discard(connection)
            if not connections:
                del self.live[connection.sandbox_id]
