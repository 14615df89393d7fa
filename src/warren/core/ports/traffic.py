"""Audit entries of port traffic: one when a principal begins to use a port, then one a minute.

A page takes hundreds of requests, so they share entries. The first connection of a principal to a port is
`port.connect`, written before its response; every minute with traffic then has one `port.traffic`.
"""

from __future__ import annotations

import time
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

    from warren.core.audit.log import Audit
    from warren.domain.records import Caller, Owner

WINDOW_S = 60.0
_MOST = 4096
"""Open windows of principals and ports; above that, all are written."""
_STATUSES = 16


class _Key(NamedTuple):
    owner: Owner
    key_id: str
    link_id: str
    sandbox_id: str
    port: int


class Window:
    """Traffic between a principal and a port since the last entry."""

    __slots__ = ("bytes_in", "bytes_out", "caller", "ends", "open", "requests", "statuses")

    def __init__(self, caller: Caller, ends: float) -> None:
        self.caller = caller
        self.ends = ends
        self.open = 0
        """Connections that may still add to it."""
        self.requests = 0
        self.bytes_in = 0
        self.bytes_out = 0
        self.statuses: Counter[str] = Counter()

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to write."""
        return not (self.requests or self.bytes_in or self.bytes_out)

    def end(self, status: str) -> None:
        """Count a request that ended: with the status of the server inside, or the code of an error."""
        self.open -= 1
        self.requests += 1
        known = status in self.statuses or len(self.statuses) < _STATUSES
        self.statuses[status if known else "other"] += 1


class PortTraffic:
    """The open windows. `Ports.run` calls `collect` periodically, and `collect(now=True)` at the end."""

    def __init__(self, audit: Audit, clock: Callable[[], float] = time.monotonic) -> None:
        self._audit = audit
        self._clock = clock
        self._windows: dict[_Key, Window] = {}

    def begin(self, caller: Caller, sandbox_id: str, port: int) -> tuple[Window, bool]:
        """Count a connection; return whether it is the first of a while, and so gets its own entry."""
        who = caller.principal
        key = _Key(who.owner, who.key_id or "", caller.link_id, sandbox_id, port)
        window = self._windows.get(key)
        is_first = window is None
        if window is None:
            if len(self._windows) >= _MOST:
                self.collect(now=True)
            window = self._windows[key] = Window(caller, self._clock() + WINDOW_S)
        window.open += 1
        return window, is_first

    def collect(self, *, now: bool = False) -> None:
        """Write the windows whose minute is over, or all, and drop those without open connections."""
        at = self._clock()
        for key, window in list(self._windows.items()):
            if not now and at < window.ends:
                continue
            if not window.is_empty:
                self._write(key, window)
            if not window.open:
                del self._windows[key]
            window.ends = at + WINDOW_S

    def _write(self, key: _Key, window: Window) -> None:
        self._audit.note(
            window.caller,
            "port.traffic",
            sandbox_id=key.sandbox_id,
            port=key.port,
            requests=window.requests,
            statuses=dict(window.statuses),
            bytes_in=window.bytes_in,
            bytes_out=window.bytes_out,
        )
        window.requests = window.bytes_in = window.bytes_out = 0
        window.statuses.clear()
