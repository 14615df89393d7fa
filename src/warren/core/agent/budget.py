"""What the links of this process may hold: streams at an agent, and bytes of events that nobody has read."""

from __future__ import annotations

from warren.guest.wire.streams import MAX_STREAMS

UNREAD_BYTES = 256 << 20
"""Of all links together: past it, each may keep its share, so that a few noisy sandboxes silence no other."""
_MORE = 2
"""How often as much there may be of what is not dropped as easily as output: displays and results."""

_CONTROL = frozenset({"kill", "interrupt", "ack", "configure", "kernels", "kernel.restart", "kernel.delete"})
_LASTING = frozenset({"terminal.open", "terminal.attach", "tunnel.connect"})
_FOR_LASTING = MAX_STREAMS // 2
_FOR_MOST = MAX_STREAMS - 64


def room_for(op: str) -> int:
    """Return how many streams may be open for one more of that kind: whatever else goes on, `kill` finds room."""
    if op in _CONTROL:
        return MAX_STREAMS
    return _FOR_LASTING if op in _LASTING else _FOR_MOST


class Unread:
    """Adds up what the links hold. A link tells how its part changes, and leaves when it is lost."""

    def __init__(self, most: int = UNREAD_BYTES) -> None:
        self._most = most
        self._connections = 0
        self.size = 0

    def change(self, before: int, now: int) -> None:
        """Count a link that held `before` bytes and holds `now`."""
        self.size += now - before
        self._connections += bool(now) - bool(before)

    def is_full_for(self, held: int, *, is_output: bool) -> bool:
        """Say whether a link that holds so much has more than its share, where there is too much of all together."""
        most = self._most if is_output else self._most * _MORE
        return self.size > most and held * self._connections > most


EVERYBODY = Unread()
"""Memory is the process's: one for all links that are not told otherwise."""
