"""otari's editor: its commands, and the message of each failure."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING

from warren.domain.errors import Conflict, InvalidRequest, NotFound, OutsideWorkspace, TooLarge
from warren.gateway.dialects.otari.translate import Ran

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from warren.core.agent.client import AgentClient
    from warren.gateway.api.operations import Call
    from warren.gateway.dialects.otari.schemas import EditorInput

_FAR = 1 << 60
"""Further than any line: the wire has no larger numbers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Edited:
    """The outcome of an editor command, before it has a shape."""

    command: str
    text: str = ""
    """What it says: the file, or a line about what was done."""
    failure: str | None = None
    is_missing: bool = False
    is_update: bool = False
    line: int = 0
    lines: int = 0
    shown: int = 0
    before: str = ""
    after: str = ""

    def read(self) -> Ran:
        """Say it as a program would."""
        if self.failure is not None:
            return Ran(stderr=f"text_editor: {self.failure}\n", return_code=1)
        return Ran(stdout=self.text)


async def edit(call: Call, session_id: str, asked: EditorInput, *, overwrite: bool) -> Edited:
    """Do an editor command; a failed command is a result too."""
    command = _create_over if overwrite and asked.command == "create" else _COMMANDS[asked.command]
    do = functools.partial(command, asked)
    try:
        return await call.service.files.edit(call.caller, session_id, asked.path, asked.command, do)
    except NotFound:
        missing = f"no edits to undo for {asked.path}" if asked.command == "undo_edit" else None
        return Edited(command=asked.command, failure=missing or f"file not found: {asked.path}", is_missing=True)
    except (Conflict, InvalidRequest, TooLarge) as error:
        why = f"path escapes workspace: {asked.path}" if isinstance(error, OutsideWorkspace) else str(error)
        return Edited(command=asked.command, failure=why)


async def _view(asked: EditorInput, agent: AgentClient, path: str) -> Edited:
    span = asked.view_range if asked.view_range is not None and len(asked.view_range) == 2 else None
    if span is None:
        viewed = await agent.view_text(path)
    else:
        first = min(max(span[0], 1), _FAR)
        viewed = await agent.view_text(path, first, None if span[1] == -1 else min(max(span[1], 0), _FAR))
    text = viewed.content.decode("utf-8", "replace")
    shown = text.count("\n") + (1 if text and not text.endswith("\n") else 0)
    return Edited(
        command="view",
        text=f"{text}\n" if viewed.is_folder else text,
        line=viewed.first,
        lines=viewed.lines,
        shown=shown,
    )


async def _create(asked: EditorInput, agent: AgentClient, path: str, *, overwrite: bool = False) -> Edited:
    if asked.file_text is None:
        return _fail(asked, "create requires file_text")
    created, replaced = await agent.create_text(path, _encode(asked.file_text), overwrite=overwrite)
    if not created:
        return _fail(asked, f"already exists: {asked.path}")
    return Edited(command="create", text=f"File created: {asked.path}\n", is_update=replaced)


async def _str_replace(asked: EditorInput, agent: AgentClient, path: str) -> Edited:
    if asked.old_str is None or asked.new_str is None:
        return _fail(asked, "str_replace requires old_str and new_str")
    replaced = await agent.replace_text(path, _encode(asked.old_str), _encode(asked.new_str))
    if replaced.matches == 0:
        return _fail(asked, f"old_str not found in {asked.path}")
    if replaced.matches > 1:
        return _fail(asked, f"old_str matched {replaced.matches} times in {asked.path}; must be unique")
    return Edited(
        command="str_replace",
        text=f"Edited {asked.path}\n",
        line=replaced.line,
        before=replaced.before.decode("utf-8", "replace"),
        after=replaced.after.decode("utf-8", "replace"),
    )


async def _insert(asked: EditorInput, agent: AgentClient, path: str) -> Edited:
    if asked.new_str is None or asked.insert_line is None:
        return _fail(asked, "insert requires new_str and insert_line")
    line = max(-_FAR, min(asked.insert_line, _FAR))
    inserted, _ = await agent.insert_text(path, line, _encode(asked.new_str))
    if not inserted:
        return _fail(asked, f"insert_line {asked.insert_line} out of range for {asked.path}")
    return Edited(command="insert", text=f"Inserted into {asked.path}\n", line=line + 1, after=asked.new_str)


async def _undo(asked: EditorInput, agent: AgentClient, path: str) -> Edited:
    if not await agent.undo_text(path):
        return _fail(asked, f"no edits to undo for {asked.path}")
    return Edited(command="undo_edit", text=f"Reverted {asked.path}\n")


def _fail(asked: EditorInput, why: str) -> Edited:
    return Edited(command=asked.command, failure=why)


def _encode(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


_create_over = functools.partial(_create, overwrite=True)
_COMMANDS: dict[str, Callable[..., Awaitable[Edited]]] = {
    "view": _view,
    "create": _create,
    "str_replace": _str_replace,
    "insert": _insert,
    "undo_edit": _undo,
}
