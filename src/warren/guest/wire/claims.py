"""Claims of a kernel: checked for types and sizes; a wrong one raises ProtocolError, which ends that kernel.

User code shares the kernel's process and can find its control socket, so no claim is a fact.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from warren.guest.wire.frames import ProtocolError

if TYPE_CHECKING:
    from warren.guest.wire.frames import Header

STATUSES = ("ok", "error", "interrupted", "exit")
MAX_MIMES = 64
MAX_DEPTH = 32
MAX_ITEMS = 10_000
"""Of the metadata of a display: nested lists by the million take a reader a second."""


def check_exec(header: Header) -> str:
    """Return the execution of a frame."""
    value = header.get("exec")
    if not isinstance(value, str) or len(value) > 64:
        raise ProtocolError("a claim names no execution")
    return value


def check_done(header: Header) -> tuple[str, int, dict[str, str] | None]:
    """Return the status, the exit code and the error of a finished cell."""
    status = header.get("status")
    if status not in STATUSES:
        raise ProtocolError("a finished cell has no status")
    code = header.get("exit_code")
    if status != "exit":
        code = 0 if status == "ok" else 1
    elif not isinstance(code, int) or isinstance(code, bool) or not 0 <= code <= 255:
        raise ProtocolError("a cell ended with an invalid exit code")
    error = header.get("error")
    return str(status), code, None if error is None else _check_error(error)


def read_error(data: bytes) -> dict[str, str] | None:
    """Return the exception that a script claims ended it; None where it claims none, or an invalid one."""
    try:
        return _check_error(json.loads(data)) if data else None
    except (ValueError, RecursionError, ProtocolError):
        return None


def check_frozen(header: Header) -> tuple[int, int]:
    """Return the pid and the private memory of a frozen copy."""
    pid, size = header.get("pid"), header.get("private_bytes", 0)
    for value in (pid, size):
        if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 1 << 48:
            raise ProtocolError("a frozen copy is not described by numbers")
    assert isinstance(pid, int)
    return pid, size


def check_why(header: Header) -> str:
    """Return why a kernel could not be copied."""
    why = header.get("why")
    if not isinstance(why, str):
        raise ProtocolError("an unprotected kernel does not say why")
    return why[:500]


def check_display(header: Header, payload: bytes) -> str:
    """Return the kind of a display whose payload is a bundle of MIME types."""
    kind = header.get("display")
    if kind not in ("display", "result"):
        raise ProtocolError("a display has an unknown kind")
    try:
        bundle = json.loads(payload)
    except (ValueError, RecursionError):
        raise ProtocolError("a display is not JSON") from None
    data = bundle.get("data") if isinstance(bundle, dict) else None
    metadata = bundle.get("metadata", {}) if isinstance(bundle, dict) else None
    if not isinstance(data, dict) or len(data) > MAX_MIMES or not isinstance(metadata, dict):
        raise ProtocolError("a display is not a bundle")
    if not is_bounded(metadata):
        raise ProtocolError("a display has too much metadata")
    if not all(isinstance(value, str) for value in data.values()):
        raise ProtocolError("a display holds something other than text")
    return str(kind)


def is_bounded(metadata: dict[str, Any]) -> bool:
    """Return whether the metadata of a display is within the bounds on items and depth."""
    level: list[Any] = [metadata]
    seen = 0
    for _ in range(MAX_DEPTH):
        below: list[Any] = []
        for one in level:
            if isinstance(one, dict):
                below += one.values()
            elif isinstance(one, list | tuple):
                below += one
            if seen + len(below) > MAX_ITEMS:
                return False
        if not below:
            return True
        seen += len(below)
        level = below
    return False


def _check_error(error: object) -> dict[str, str]:
    if not isinstance(error, dict):
        raise ProtocolError("an error is not an object")
    checked = {}
    for key in ("name", "value", "traceback"):
        value = error.get(key, "")
        if not isinstance(value, str):
            raise ProtocolError("an error holds something other than text")
        checked[key] = value
    return checked
