"""State files: small JSON files that outlive a process of an engine, and the last lines of its log."""

from __future__ import annotations

import contextlib
import json
import os
from typing import Any

MAX_LOG = 1 << 20
_TAIL = 4096


def load(path: str) -> dict[str, Any]:
    """Read a state file; empty when it is missing or incomplete."""
    try:
        with open(path, encoding="utf-8") as file:
            value = json.load(file)
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}


def save(path: str, value: dict[str, Any]) -> None:
    """Replace a state file atomically."""
    with open(f"{path}.new", "w", encoding="utf-8") as file:
        # Not by `dump`, which encodes piece by piece in Python.
        file.write(json.dumps(value))
    os.replace(f"{path}.new", path)


def last_words(log_path: str, since: int = 0) -> str:
    """Return the last line of a log after the byte `since`: it names the error that ended its writer."""
    lines: list[str] = []
    with contextlib.suppress(OSError), open(log_path, "rb") as log:
        log.seek(max(since, os.fstat(log.fileno()).st_size - _TAIL))
        lines = [line.strip() for line in log.read(_TAIL).decode(errors="replace").splitlines() if line.strip()]
    return lines[-1] if lines else f"it said nothing in {log_path}"


def trim(log: int) -> int:
    """Cut a long log, open for reading and appending, to its end; returns its size. Others may append meanwhile."""
    size = os.fstat(log).st_size
    if size <= MAX_LOG:
        return size
    _, _, end = os.pread(log, MAX_LOG // 2, size - MAX_LOG // 2).partition(b"\n")
    os.ftruncate(log, 0)
    return os.write(log, end)
