"""Egress connections: what a program asked for, what one connection moved, and what its sandbox may still use."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, NamedTuple

from warren.domain.values import new_id

if TYPE_CHECKING:
    from anyio import CancelScope

    from warren.core.policy.policy import EgressLimits
    from warren.domain.records import Owner

_HOUR_S = 3600.0


class Asked(NamedTuple):
    """The destination that a program asked for."""

    host: str
    """In canonical spelling."""
    port: int
    kind: str
    """The protocol of the request: `http`, `connect` or `socks`."""
    method: str | None = None
    """The method of a plain HTTP request."""


class EgressConnection:
    """One egress connection: its counters, and the fields of its audit entry."""

    __slots__ = (
        *("_scope", "_usage", "address", "asked", "began", "cut_by", "id", "is_noted", "moved_at", "outcome", "owner"),
        *("received", "requests", "rule", "sandbox_id", "secrets", "sent", "server_name", "slot", "via"),
    )

    def __init__(self, sandbox_id: str, owner: Owner, asked: Asked, usage: EgressUsage, scope: CancelScope) -> None:
        self.id = new_id("con")
        self.slot: int | None = None
        """Its slot in the journal."""
        self.sandbox_id = sandbox_id
        self.owner = owner
        self.asked = asked
        self.address = ""
        self.via = ""
        """The upstream proxy that it goes through, if any."""
        self.rule = ""
        self.outcome = "ok"
        self.server_name: str | None = None
        """The server name in the ClientHello, where that caused the refusal."""
        self.secrets: tuple[str, ...] = ()
        """Names of the secrets that replaced placeholders."""
        self.requests = 0
        self.sent = 0
        self.received = 0
        self.began = self.moved_at = time.monotonic()
        self._scope = scope
        self.cut_by = ""
        """Why Warren ended the connection."""
        self.is_noted = False
        self._usage = usage

    def count(self, *, sent: int = 0, received: int = 0) -> None:
        """Count bytes, and cut the connection when its sandbox exceeds the hourly limit."""
        self.sent += sent
        self.received += received
        self.moved_at = time.monotonic()
        if not self._usage.take(sent + received):
            self.cut("limit", "this sandbox has moved as many bytes as it may in an hour (egress.bytes_per_hour)")

    @property
    def addresses(self) -> tuple[str, ...] | None:
        """The address to decide by again: none behind an upstream proxy, None before it is connected."""
        if self.address:
            return (self.address,)
        return () if self.via else None

    def cut(self, outcome: str, why: str) -> None:
        """End the connection. The first reason counts."""
        if not self.cut_by:
            self.outcome, self.cut_by = outcome, why
        self._scope.cancel()

    def fail(self, outcome: str) -> None:
        """Set the outcome, unless one is set."""
        if self.outcome == "ok":
            self.outcome = outcome


class EgressUsage:
    """Egress of one sandbox: its bytes of this hour, and a token bucket of new connections."""

    __slots__ = ("_limits", "_until", "_used", "refilled_at", "tokens")

    def __init__(self, limits: EgressLimits) -> None:
        self._limits = limits
        self._used = 0
        self._until = 0.0
        self.tokens = limits.per_minute / 4
        self.refilled_at = time.monotonic()

    def take(self, size: int) -> bool:
        """Count bytes; False above the hourly limit."""
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
        """Count a new connection; False above the rate."""
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
        """Whether the hour and the token bucket have run out, so that the entry can be dropped."""
        now = time.monotonic()
        return now >= self._until and now - self.refilled_at > 60
