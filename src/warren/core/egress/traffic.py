"""What passes between sandboxes and the outside: each connection counted, bounded, and written down.

A connection has one `egress.connect` in the audit record, at its end; one that lasts has an `egress.open` first, so
that nothing is unknown that goes on. Refusals of one kind in a minute are one entry with their count. What is not in
the record yet is in the journal: see `core/egress/journal.py`.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, NamedTuple

from warren.domain.values import new_id

if TYPE_CHECKING:
    from collections.abc import Iterable

    from anyio import CancelScope

    from warren.core.egress.record import EgressRecord
    from warren.core.policy.egress_limits import EgressLimits
    from warren.core.telemetry.counters import Counters
    from warren.domain.egress import Verdict
    from warren.domain.records import Owner

OPEN_S = 2.0
"""After which a connection that is still there is written down as open."""
REFUSALS_S = 60.0
_MOST_REFUSALS = 4096
_HOUR_S = 3600.0


class Asked(NamedTuple):
    """What a program wants to reach."""

    host: str
    """In its one spelling."""
    port: int
    kind: str
    """`http`, `connect`, `socks`: how it asked."""
    method: str | None = None
    """Of plain HTTP."""


class EgressConnection:
    """One connection to the outside, as it is counted and written down."""

    __slots__ = (
        *("_scope", "_usage", "address", "asked", "began", "cut_by", "id", "is_noted", "moved_at", "outcome", "owner"),
        *("received", "requests", "rule", "sandbox_id", "secrets", "sent", "server_name", "slot", "via"),
    )

    def __init__(self, sandbox_id: str, owner: Owner, asked: Asked, usage: EgressUsage, scope: CancelScope) -> None:
        self.id = new_id("con")
        self.slot: int | None = None
        """Where it is in the journal."""
        self.sandbox_id = sandbox_id
        self.owner = owner
        self.asked = asked
        self.address = ""
        self.via = ""
        """What it goes through, where that is not ours."""
        self.rule = ""
        self.outcome = "ok"
        self.server_name: str | None = None
        """What was said over TLS, where that is why it was refused."""
        self.secrets: tuple[str, ...] = ()
        """Names of those that were put in."""
        self.requests = 0
        self.sent = 0
        self.received = 0
        self.began = self.moved_at = time.monotonic()
        self._scope = scope
        self.cut_by = ""
        """Why it was ended by us."""
        self.is_noted = False
        self._usage = usage

    def count(self, *, sent: int = 0, received: int = 0) -> None:
        """Count what passed; when that is too much, it is cut."""
        self.sent += sent
        self.received += received
        self.moved_at = time.monotonic()
        if not self._usage.take(sent + received):
            self.cut("limit", "this sandbox has moved as many bytes as it may in an hour (egress.bytes_per_hour)")

    @property
    def addresses(self) -> tuple[str, ...] | None:
        """Where it goes, as it is decided again: nothing is known of it, or it is not made yet."""
        if self.address:
            return (self.address,)
        return () if self.via else None

    def cut(self, outcome: str, why: str) -> None:
        """End it."""
        if not self.cut_by:
            self.outcome, self.cut_by = outcome, why
        self._scope.cancel()

    def fail(self, outcome: str) -> None:
        """Note how it ended, unless that is known already."""
        if self.outcome == "ok":
            self.outcome = outcome


class EgressUsage:
    """What a sandbox moved in this hour, and how many connections it may make now."""

    __slots__ = ("_limits", "_until", "_used", "refilled_at", "tokens")

    def __init__(self, limits: EgressLimits) -> None:
        self._limits = limits
        self._used = 0
        self._until = 0.0
        self.tokens = limits.per_minute / 4
        self.refilled_at = time.monotonic()

    def take(self, size: int) -> bool:
        """Count bytes; False when there were too many."""
        most = self._limits.bytes_per_hour
        if not most:
            return True
        if self._used + size > most or not self._until:
            now = time.monotonic()
            if now >= self._until:
                self._used, self._until = 0, now + _HOUR_S
        self._used += size
        return self._used <= most

    def take_connection(self) -> bool:
        """Count a new connection; False when they come too fast."""
        most = self._limits.per_minute
        if not most:
            return True
        now = time.monotonic()
        self.tokens = min(most / 4, self.tokens + (now - self.refilled_at) * most / 60)
        self.refilled_at = now
        if self.tokens < 1:
            return False
        self.tokens -= 1
        return True

    @property
    def is_over(self) -> bool:
        """Whether nothing of it matters any more."""
        now = time.monotonic()
        return now >= self._until and now - self.refilled_at > 60


class _Refusals:
    """One kind of refusal in one minute."""

    __slots__ = ("connection", "count", "until")

    def __init__(self, connection: EgressConnection) -> None:
        self.connection = connection
        self.count = 0
        self.until = time.monotonic() + REFUSALS_S


class Traffic:
    """All that passes now. Somebody calls `collect` now and then, and `collect(now=True)` at the end."""

    def __init__(self, record: EgressRecord, observer: Counters, limits: EgressLimits) -> None:
        self.limits = limits
        self.live: dict[str, set[EgressConnection]] = {}
        """By sandbox."""
        self.record = record
        self._observer = observer
        self._looked_at = 0.0
        self._hours: dict[str, EgressUsage] = {}
        self._refusals: dict[tuple[str, str, int, str], _Refusals] = {}

    def begin(self, sandbox_id: str, owner: Owner, asked: Asked, scope: CancelScope) -> EgressConnection:
        """Begin to count something that a program asked for; `end` or `refuse` it."""
        usage = self._hours.get(sandbox_id)
        if usage is None:
            usage = self._hours[sandbox_id] = EgressUsage(self.limits)
        connection = EgressConnection(sandbox_id, owner, asked, usage, scope)
        self.live.setdefault(sandbox_id, set()).add(connection)
        return connection

    def may_begin(self, sandbox_id: str) -> bool:
        """Count one more connection of a sandbox; False when they come too fast."""
        usage = self._hours.get(sandbox_id)
        if usage is None:
            usage = self._hours[sandbox_id] = EgressUsage(self.limits)
        if usage.take_connection():
            return True
        self._observer.rejected("egress_rate")
        return False

    def end(self, connection: EgressConnection) -> None:
        """Write down a connection that is over."""
        self._forget(connection)
        self._observer.connection_ended(connection.sent, connection.received)
        self.record.note(connection, "egress.connect", allowed=True)
        self.record.let_go(connection)

    def refuse(self, connection: EgressConnection, verdict: Verdict) -> None:
        """Write down that something was refused; the same again within a minute is counted."""
        self._forget(connection)
        self._observer.connections["refused"] += 1
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
        """Return what is open now."""
        return [connection for connections in self.live.values() for connection in connections]

    def collect(self, *, now: bool = False) -> None:
        """Write down what lasts, and the refusals of the last minute; close what is idle."""
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
        self._hours = {key: usage for key, usage in self._hours.items() if key in self.live or not usage.is_over}

    def _forget(self, connection: EgressConnection) -> None:
        connections = self.live.get(connection.sandbox_id)
        if connections is not None:
            connections.discard(connection)
            if not connections:
                del self.live[connection.sandbox_id]
