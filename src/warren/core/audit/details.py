"""Details of an audit entry, truncated to its size limit, with a mark where something was cut."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import orjson

if TYPE_CHECKING:
    from collections.abc import Mapping

MOST_BYTES = 32 << 10
_WORST = 12
"""Bytes of one character in JSON, at most."""
_MARKS = 1024
"""Bytes reserved for the marks."""
_DEPTH = 8


def bound_details(details: Mapping[str, object]) -> tuple[dict[str, object], int]:
    """Build plain JSON values of at most 32 KiB, and return their approximate size."""
    room = MOST_BYTES - _MARKS
    while True:
        cutter = _Cutter(room)
        bounded = {str(name): cutter.cut(value) for name, value in details.items()}
        size = room - cutter.room
        if size * _WORST > MOST_BYTES:
            # The same length, and ten times as fast, for pure ASCII.
            size = len(orjson.dumps(bounded)) if cutter.is_ascii else len(json.dumps(bounded))
        if size <= MOST_BYTES:
            return bounded, size
        room //= 2


class _Cutter:
    """Spends a budget of bytes, value by value."""

    def __init__(self, room: int) -> None:
        self.room = room
        self.is_ascii = True

    def cut(self, value: object, depth: int = 0) -> object:
        if isinstance(value, str):
            return self._cut_text(value)
        if value is None or (isinstance(value, int) and abs(value) < 1 << 63):
            self.room -= 8
            return value
        if isinstance(value, float):
            self.room -= 16
            # JSON has neither infinity nor NaN.
            return value if value - value == 0 else str(value)
        if depth < _DEPTH and isinstance(value, dict):
            return self._cut_mapping(value, depth)
        if depth < _DEPTH and isinstance(value, list | tuple | set | frozenset):
            return self._cut_items(list(value), depth)
        return self._cut_text(_write(value))

    def _cut_text(self, text: str) -> str:
        if not text.isascii():
            # A lone surrogate cannot be encoded as UTF-8.
            text = text.encode("utf-8", "replace").decode()
            self.is_ascii = False
        keep = max(self.room, 0)
        self.room -= len(text) + 4
        if len(text) <= keep:
            return str(text)
        self.room = 0
        self.is_ascii = False
        return f"{text[:keep]}… ({len(text) - keep} characters more)"

    def _cut_mapping(self, value: Mapping[object, object], depth: int) -> dict[str, object]:
        kept: dict[str, object] = {}
        for name, item in value.items():
            if self.room <= 0:
                self.is_ascii = False
                kept["…"] = f"{len(value) - len(kept)} more"
                break
            kept[self._cut_text(str(name))] = self.cut(item, depth + 1)
        return kept

    def _cut_items(self, value: list[object], depth: int) -> list[object]:
        kept: list[object] = []
        for item in value:
            if self.room <= 0:
                self.is_ascii = False
                kept.append(f"… ({len(value) - len(kept)} more)")
                break
            kept.append(self.cut(item, depth + 1))
        return kept


def _write(value: object) -> str:
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    # Python refuses to format numbers of more than 4300 digits.
    return hex(value) if isinstance(value, int) else str(value)
