"""An exception of user code as text: the traceback a Python user knows, bounded, whatever the exception does."""

from __future__ import annotations

import json
import os
import traceback
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

TRACEBACK_CHARS = 64 << 10
_CLAIM_BYTES = 56 << 10
"""What a claim may take in a frame's header, which holds 64 KiB."""
_OURS = os.path.dirname(os.path.dirname(__file__)) + os.sep
_LIBRARY = os.path.dirname(os.__file__)
_MACHINERY = tuple(os.path.join(_LIBRARY, name) for name in ("asyncio" + os.sep, "selectors.py", "codeop.py"))


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a cell ended: a claim that goes to the agent."""

    status: str
    exit_code: int = 0
    error: dict[str, str] | None = None


def describe(error: BaseException, *, hidden: tuple[str, ...] = ()) -> dict[str, str]:
    """Build `{name, value, traceback}`. Frames of ours, and of files below the `hidden` folders, are left out."""
    try:
        told = traceback.TracebackException.from_exception(error, compact=True)
        _prune(told, (_OURS, *hidden))
        name, value, text = str(type(error).__name__), str(error), "".join(told.format())
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


def exit_code(error: SystemExit, say: Callable[[str], None]) -> int:
    """Return the status that Python would exit with; a message instead of a number is said, and is 1."""
    code = error.code
    if code is None:
        return 0
    if isinstance(code, int):
        return int(code) & 0xFF
    try:
        say(f"{code}\n")
    except Exception:
        say("<an exit code that cannot be printed>\n")
    return 1


def cut(text: str, room: int) -> str:
    """Keep the first and the last of a text that is too long."""
    if len(text) <= room:
        return text
    half = max(0, room // 2 - 20)
    return f"{text[:half]}\n… {len(text) - 2 * half} characters left out …\n{text[len(text) - half :]}"


def _prune(told: traceback.TracebackException, hidden: tuple[str, ...]) -> None:
    frames = [frame for frame in told.stack or () if not frame.filename.startswith(hidden)]
    # Above the first line of the user there may be the event loop, or the compiler that refused the cell.
    while frames and frames[0].filename.startswith(_MACHINERY):
        del frames[0]
    # None, not empty: without a place there is no heading either, as Python prints a SyntaxError.
    told.stack = traceback.StackSummary.from_list(frames) if frames else None  # type: ignore[assignment]
    for other in (told.__cause__, told.__context__, *(told.exceptions or ())):
        if other is not None:
            _prune(other, hidden)


def _safe_name(error: BaseException) -> str:
    try:
        return str(type(error).__name__)
    except BaseException:  # a metaclass may do anything
        return "Exception"
