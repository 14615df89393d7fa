"""Egress journal: open connections in a file, so that a service that was killed can audit them when it starts again.

1. Each connection has a slot, written in place before its first byte leaves, without fsync: written pages survive the
   process. The slot is cleared once the audit record has the connection.
2. A slot may be torn. Slots that cannot be parsed are skipped.
"""

from __future__ import annotations

import contextlib
import os
import weakref
from typing import Any

import orjson

from warren.domain.errors import StoreError

_SLOT = 2048
"""Divides a page of memory, so that a write is complete or absent."""
_TEXTS = ((255, 255), (60, 255), (60, 60))
"""Characters kept of a text and of an identity; the next pair where the entry exceeds a slot."""
_WHOSE = frozenset({"tenant", "subject"})
"""Cut last: a truncated identity would name another principal."""
_MAX_BYTES = 64 << 20


class EgressJournal:
    """The file. It is created at the first write."""

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
        """Return the entries that the last service left, with their slots; the caller clears those. Only at start-up.

        Reads the disk. Raises StoreError.
        """
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
