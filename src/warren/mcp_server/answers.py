"""Answers of tools: text for the model, the same as data, and pictures. Long outputs keep both ends."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from mcp_types import CallToolResult, ImageContent, TextContent

from warren.domain.errors import Overloaded, QuotaExceeded, SandboxLost
from warren.domain.values import Cause, State

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from mcp_types import ContentBlock

    from warren.domain.errors import Error
    from warren.domain.values import ExecResult, FileChange

MAX_IMAGES = 8
MAX_IMAGE_BYTES = 4 << 20
"""For all pictures of an answer, as base64: a limit of clients."""
MAX_CHANGES = 50
IMAGES = ("image/png", "image/jpeg", "image/gif", "image/webp")


class Failed(Exception):
    """A tool failed; the message says what to do next."""


def answer(
    text: str, data: Mapping[str, Any], images: Iterable[ImageContent] = (), *, ok: bool = True
) -> CallToolResult:
    """Build an answer."""
    content: list[ContentBlock] = [TextContent(text=printable(text)), *images]
    return CallToolResult(content=content, structured_content=scrub(dict(data)), is_error=not ok)


def refuse(text: str) -> CallToolResult:
    """Build the answer of a tool that failed."""
    return CallToolResult(content=[TextContent(text=printable(text))], is_error=True)


def explain(error: Error) -> str:
    """Write an error, and what to do next."""
    text = str(error).rstrip(".")
    if isinstance(error, QuotaExceeded | Overloaded) and error.retry_after_s:
        return f"{text}. Try again in {error.retry_after_s:.0f} seconds."
    if isinstance(error, SandboxLost):
        return f"{text}. Call again: a sandbox that is gone is made anew, without what was in it."
    return str(error)


def clip(text: str, most: int) -> str:
    """Keep both ends of a long text, and state how much is missing between them."""
    if len(text) <= most:
        return text
    head, tail = most // 3, most - most // 3
    left_out = len(text) - head - tail
    return (
        f"{text[:head]}\n[... {left_out} characters left out; to see them, write the output to a file and "
        f"read parts of it ...]\n{text[len(text) - tail :]}"
    )


def printable(text: str) -> str:
    """Make text fit for JSON: lone surrogates are replaced."""
    return text.encode("utf-8", "replace").decode()


def scrub(value: Any) -> Any:
    """Make every text in a value fit for JSON."""
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, dict):
        return {printable(str(name)): scrub(each) for name, each in value.items()}
    return [scrub(each) for each in value] if isinstance(value, list | tuple) else value


def decode(output: bytes) -> str:
    """Decode the output of a program."""
    return output.decode("utf-8", "replace")


def list_changes(changes: Iterable[FileChange]) -> list[dict[str, Any]]:
    """List created, changed and deleted files, without caches of programs."""
    shown = [each for each in changes if not _is_private(each.path)]
    return [{"path": each.path, "action": each.action, "size": each.size} for each in shown[:MAX_CHANGES]]


def _is_private(path: str) -> bool:
    return any(part == "__pycache__" or (part.startswith(".") and len(part) > 1) for part in path.split("/"))


def why(result: ExecResult, timeout_s: float) -> str:
    """Write in one line how an execution failed."""
    is_broken_off = result.cause not in {Cause.EXITED, Cause.ERROR}
    kept = "Variables are kept." if is_broken_off and result.state is State.KEPT else ""
    if result.hint:
        # The hint names the cause, and the fate of variables unless they are kept.
        return f"{result.hint} {kept}".rstrip()
    sentence = _CAUSES.get(result.cause, "").format(timeout=f"{timeout_s:g}")
    if not sentence and result.exit_code:
        sentence = f"It ended with exit code {result.exit_code}."
    state = _STATES.get(result.state, "") if result.cause is not Cause.EXITED else ""
    return " ".join(part for part in (sentence, state, kept) if part)


_CAUSES = {
    Cause.TIMEOUT: "It was stopped after {timeout} seconds: give it more with `timeout`, or run it in the background.",
    Cause.INTERRUPTED: "It was interrupted.",
    Cause.OOM: "It was killed because the sandbox has no more memory: work on less at a time.",
    Cause.CPU: "It was killed because it used more processor time than it may.",
    Cause.PIDS: "It was killed because the sandbox has too many processes.",
    Cause.DISK: "The sandbox's disk is full: delete files that are no longer needed.",
    Cause.OUTPUT: "It was killed because it wrote far too much output: write it to a file.",
    Cause.KILLED: "Its process was killed, or crashed.",
    Cause.LOST: "The sandbox went away while it ran: call again, and a new one is made.",
}
_STATES = {
    State.ROLLED_BACK: "Variables are as they were before this call.",
    State.LOST: "All variables are gone.",
}


def pictures(result: ExecResult) -> list[ImageContent]:
    """Return the pictures of a cell, within the limits of clients."""
    found: list[ImageContent] = []
    room = MAX_IMAGE_BYTES
    for display in result.displays:
        kind = next((each for each in IMAGES if each in display.data), None)
        if kind is not None and len(display.data[kind]) <= room and len(found) < MAX_IMAGES:
            room -= len(display.data[kind])
            found.append(ImageContent(data=display.data[kind], mime_type=kind))
    return found


def dump(value: Mapping[str, Any]) -> str:
    """Write JSON as the original did."""
    return json.dumps(scrub(dict(value)), indent=2)
