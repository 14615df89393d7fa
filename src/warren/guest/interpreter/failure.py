"""The outcome of a cell, and exceptions of user code as text: the usual traceback, bounded whatever they do."""

from __future__ import annotations

import json
import linecache
import os
import traceback
from dataclasses import dataclass
from typing import TYPE_CHECKING

from warren.guest.interpreter import stdio

if TYPE_CHECKING:
    from collections.abc import Callable

TRACEBACK_CHARS = 64 << 10
_CLAIM_BYTES = 56 << 10
"""The most that a claim may take in a frame's header, which holds 64 KiB."""
_OURS = os.path.dirname(os.path.dirname(__file__)) + os.sep
_LIBRARY = os.path.dirname(os.__file__)
_MACHINERY = tuple(os.path.join(_LIBRARY, name) for name in ("asyncio" + os.sep, "selectors.py", "codeop.py"))


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a cell ended: a claim that goes to the agent."""

    status: str
    exit_code: int = 0
    error: dict[str, str] | None = None


def remember_source(name: str, code: str) -> None:
    """Let tracebacks find the lines of code that is in no file."""
    # WHY the line feed: on a last line without one, Python 3.11 prints its carets one column too far right.
    lines = (code if code.endswith("\n") else f"{code}\n").splitlines(keepends=True)
    linecache.cache[name] = (len(code), None, lines, name)


def conclude(error: BaseException, described: dict[str, str] | None = None) -> Outcome:
    """Build the outcome of a cell that raised; print the traceback unless it is `described` and printed already."""
    if isinstance(error, SystemExit):
        return Outcome("exit", exit_code(error, stdio.write_error))
    if described is None:
        described = describe(error)
        stdio.write_error(described["traceback"])
    status = "interrupted" if isinstance(error, KeyboardInterrupt) else "error"
    return Outcome(status, 1, fit_claim(described))


def describe(error: BaseException, *, hidden: tuple[str, ...] = ()) -> dict[str, str]:
    """Build `{name, value, traceback}`. Frames of the guest, and of files below `hidden` folders, are left out."""
    try:
        formatted = traceback.TracebackException.from_exception(error, compact=True)
        _prune(formatted, (_OURS, *hidden))
        name, value, text = str(type(error).__name__), str(error), "".join(formatted.format())
    except BaseException as second:  # its __str__ may raise anything, KeyboardInterrupt too
        name, value = _safe_name(error), "<no text: its __str__ failed>"
        text = f"{name}: {value}\n({_safe_name(second)} while formatting it)\n"
    return {"name": cut(name, 256), "value": cut(value, 8192), "traceback": cut(text, TRACEBACK_CHARS)}


def fit_claim(error: dict[str, str]) -> dict[str, str]:
    """Cut the description until it fits a frame's header as JSON."""
    room = TRACEBACK_CHARS
    while len(json.dumps(error, ensure_ascii=False).encode("utf-8", "surrogatepass")) > _CLAIM_BYTES:
        room //= 2
        error = {key: cut(text, room) for key, text in error.items()}
    return error


def exit_code(error: SystemExit, write: Callable[[str], None]) -> int:
    """Return the exit status as Python computes it; a message in place of a number is printed, and counts as 1."""
    code = error.code
    if code is None:
        return 0
    if isinstance(code, int):
        return int(code) & 0xFF
    try:
        write(f"{code}\n")
    except Exception:
        write("<an exit code that cannot be printed>\n")
    return 1


def cut(text: str, room: int) -> str:
    """Shorten a text that is too long to its beginning and end."""
    if len(text) <= room:
        return text
    half = max(0, room // 2 - 20)
    return f"{text[:half]}\n… {len(text) - 2 * half} characters left out …\n{text[len(text) - half :]}"


def _prune(formatted: traceback.TracebackException, hidden: tuple[str, ...]) -> None:
    frames = [frame for frame in formatted.stack or () if not frame.filename.startswith(hidden)]
    # Frames of the event loop, or of the compiler that rejected the cell, may precede the first user frame.
    while frames and frames[0].filename.startswith(_MACHINERY):
        del frames[0]
    # None, not empty: without frames there is no heading either, as Python prints a SyntaxError.
    formatted.stack = traceback.StackSummary.from_list(frames) if frames else None  # type: ignore[assignment]
    for other in (formatted.__cause__, formatted.__context__, *(formatted.exceptions or ())):
        if other is not None:
            _prune(other, hidden)


def _safe_name(error: BaseException) -> str:
    try:
        return str(type(error).__name__)
    except BaseException:  # a metaclass may do anything
        return "Exception"
