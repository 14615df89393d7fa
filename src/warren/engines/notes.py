"""What an engine writes down for the process that comes after it: small JSON files, and the last words of a log."""

from __future__ import annotations

import contextlib
import json
import os
from typing import Any

_TAIL = 4096


def load(path: str) -> dict[str, Any]:
    """Read a note; empty when there is none, or none that was finished."""
    try:
        with open(path, encoding="utf-8") as file:
            value = json.load(file)
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}


def save(path: str, value: dict[str, Any]) -> None:
    """Replace a note whole: a reader sees the old one or the new one."""
    with open(f"{path}.new", "w", encoding="utf-8") as file:
        # Not by `dump`, which goes through the value piece by piece in Python.
        file.write(json.dumps(value))
    os.replace(f"{path}.new", path)


def last_words(log_path: str) -> str:
    """Return the last line of a log, which names what ended its writer."""
    lines: list[str] = []
    with contextlib.suppress(OSError), open(log_path, encoding="utf-8", errors="replace") as log:
        lines = [line.strip() for line in log.read()[-_TAIL:].splitlines() if line.strip()]
    return lines[-1] if lines else f"it said nothing in {log_path}"
