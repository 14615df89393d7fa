"""Output of a program, bounded: its beginning and end with a marked gap, or its beginning alone."""

from __future__ import annotations

_CONTINUATIONS = bytes(range(0x80, 0xC0))


class HeadTail:
    """Keeps the first half and the last half of `limit` bytes of everything written to it.

    Without a tail it keeps the first `limit` bytes, and marks no gap: callers mark it their own way.
    """

    __slots__ = ("_has_tail", "_head", "_head_limit", "_tail", "_tail_limit", "characters", "total")

    def __init__(self, limit: int, *, has_tail: bool = True) -> None:
        self._tail_limit = limit // 2 if has_tail else 0
        self._head_limit = limit - self._tail_limit
        self._has_tail = has_tail
        self._head = bytearray()
        self._tail = bytearray()
        self.total = 0
        """Total bytes written."""
        self.characters = 0
        """Total characters of UTF-8, also where one came in two pieces."""

    def add(self, data: bytes) -> None:
        """Add bytes."""
        self.total += len(data)
        self.characters += len(data) if data.isascii() else len(data.translate(None, _CONTINUATIONS))
        room = self._head_limit - len(self._head)
        if room > 0:
            self._head += data[:room]
            if len(data) <= room:
                return
            data = data[room:]
        if not self._has_tail:
            return
        self._tail += data
        # Trimmed only when it has doubled: a trim at every small write would copy the tail each time.
        if len(self._tail) > 2 * self._tail_limit + 4096:
            del self._tail[: len(self._tail) - self._tail_limit]

    @property
    def truncated(self) -> bool:
        """Whether something was left out."""
        return self.total > self._head_limit + self._tail_limit

    def kept(self) -> bytes:
        """Return the kept bytes; a line marks how many were left out."""
        if not self.truncated:
            return bytes(self._head + self._tail)
        head = self._head[: _character_end(self._head)]
        if not self._has_tail:
            return bytes(head)
        # Not [-limit:], which for a limit of 0 would be everything.
        tail = self._tail[len(self._tail) - self._tail_limit :]
        tail = tail[_character_start(tail) :]
        left_out = self.total - len(head) - len(tail)
        return b"".join((head, f"\n… {left_out:,} bytes left out …\n".encode(), tail))


def _character_end(data: bytearray) -> int:
    """Return where to cut so that no UTF-8 character is left half-written at the end."""
    for back in range(1, min(4, len(data)) + 1):
        byte = data[-back]
        if byte < 0x80:
            break
        if byte >= 0xC0:
            width = 2 if byte < 0xE0 else 3 if byte < 0xF0 else 4
            return len(data) - back if width > back else len(data)
    return len(data)


def _character_start(data: bytearray) -> int:
    """Return where to cut so that no UTF-8 character is half-missing at the start."""
    for at, byte in enumerate(data[:4]):
        if byte & 0xC0 != 0x80:
            return at
    # No character has four continuation bytes, so this is not text; fewer may be the rest of one.
    return len(data) if len(data) < 4 else 0
