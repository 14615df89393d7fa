"""Rate limit of audit entries for failed logins: the first of a minute get their own, the rest share one."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

WINDOW_S = 60.0
EACH = 60
"""Entries per address and minute."""
ALL = 600
"""Entries per minute, of all addresses."""
_NAMED = 20
"""Addresses that the shared entry names."""
_KNOWN = 1000
"""Addresses that are counted separately within one minute."""


class LoginFailures:
    """Decides which failed logins get their own entry, and counts the others."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._ends = 0.0
        self._seen: dict[str, int] = {}
        self._rest: dict[str, int] = {}
        self._alone = 0

    def count(self, address: str) -> bool:
        """Count a failed login; True if it gets its own entry. Call `collect` before."""
        if address not in self._seen and len(self._seen) >= _KNOWN:
            address = ""
        seen = self._seen[address] = self._seen.get(address, 0) + 1
        if seen <= EACH and self._alone < ALL:
            self._alone += 1
            return True
        self._rest[address] = self._rest.get(address, 0) + 1
        return False

    def collect(self, *, now: bool = False) -> dict[str, Any] | None:
        """Start a new minute if it is time, or `now`; return the counts of the last one."""
        at = self._clock()
        if not now and at < self._ends:
            return None
        rest, self._rest = self._rest, {}
        self._seen.clear()
        self._alone = 0
        self._ends = at + WINDOW_S
        if not rest:
            return None
        most = sorted(rest.items(), key=lambda pair: -pair[1])[:_NAMED]
        return {"count": sum(rest.values()), "addresses": dict(most)}
