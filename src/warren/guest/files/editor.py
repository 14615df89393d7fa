"""The text editor of the wire: view, create, replace, insert and undo. A file is whole, or as it was before.

Contents are bytes: what is not UTF-8, and how lines end, stays as it is.
"""

from __future__ import annotations

import contextlib
import os
import posixpath
import stat
from typing import TYPE_CHECKING, NamedTuple

from warren.guest.files.documents import MAX_EDITED, Document, read_all, too_large
from warren.guest.files.paths import Workspace, check_regular, refusal
from warren.guest.files.tree import Walk
from warren.guest.files.worker import Worker
from warren.guest.wire.frames import MAX_PAYLOAD
from warren.guest.wire.parameters import Refused, get_flag, get_number, invalid

if TYPE_CHECKING:
    from collections.abc import Callable

    from warren.guest.agent import Agent
    from warren.guest.files.worker import Result
    from warren.guest.wire.frames import Header
    from warren.guest.wire.streams import Stream

MAX_VIEWED = 256 << 20
"""Bytes of a file of which a part can be seen."""
LEVELS = 2
_QUICK = 1 << 20
"""What is looked through in the loop itself."""
_LAST = 1 << 62


class _Asked(NamedTuple):
    """One operation that was asked for."""

    agent: Agent
    stream: Stream
    header: Header
    workspace: Workspace
    path: str
    text: bytes
    """The payload."""


def _view(asked: _Asked) -> None:
    first = get_number(asked.header, "first", 1, low=1)
    last = get_number(asked.header, "last", _LAST)
    whole = "first" not in asked.header and "last" not in asked.header
    fd = asked.workspace.open(asked.path, os.O_RDONLY)
    try:
        info = os.fstat(fd)
        if stat.S_ISDIR(info.st_mode):
            ignored = frozenset(asked.agent.changes.ignored)
            _work(
                asked.agent,
                asked.stream,
                lambda: _list_folder(asked.workspace, asked.path, ignored),
                asked.workspace.fd,
            )
            return
        check_regular(fd)
        if info.st_size > (MAX_EDITED if whole else MAX_VIEWED):
            raise too_large(asked.path, "see a part of it, by its lines" if whole else "use a program")
        if info.st_size > _QUICK:
            _work(asked.agent, asked.stream, lambda: _show(fd, asked.path, first, last, whole=whole), fd)
        else:
            asked.stream.reply(*_show(fd, asked.path, first, last, whole=whole))
    finally:
        os.close(fd)


def _work(agent: Agent, stream: Stream, work: Callable[[], Result], fd: int) -> None:
    Worker(agent.loop, stream, lambda _in, _out: work(), keep=(fd,), deadline_s=60.0)


def _show(fd: int, path: str, first: int, last: int, *, whole: bool) -> Result:
    if whole:
        content = read_all(fd, os.fstat(fd).st_size, path)
        return {"type": "file", "lines": _count_lines(content), "first": 1}, content
    shown: list[bytes] = []
    number = size = 0
    with open(os.dup(fd), "rb") as file:
        for number, line in enumerate(file, 1):
            if first <= number <= last:
                shown.append(line.removesuffix(b"\n").removesuffix(b"\r"))
                size += len(shown[-1]) + 1
                if size > MAX_EDITED:
                    raise too_large(path, "see fewer lines of it")
    return {"type": "file", "lines": number, "first": first}, b"\n".join(shown)


def _list_folder(workspace: Workspace, path: str, ignored: frozenset[str]) -> Result:
    found: list[str] = []
    folders = [path]
    for _ in range(LEVELS):
        below: list[str] = []
        for folder in folders:
            with contextlib.suppress(FileNotFoundError, NotADirectoryError, PermissionError):
                for one in Walk(workspace, folder, ignored=ignored, recursive=False):
                    found.append(one.path)
                    if one.is_folder:
                        below.append(one.path)
        folders = below
    prefix = "" if path == "." else f"{path}/"
    listed = "\n".join(sorted(name.removeprefix(prefix) for name in found)).encode("utf-8", "surrogateescape")
    if len(listed) > MAX_EDITED:
        raise too_large(path, "list a folder below it")
    return {"type": "directory", "lines": len(found), "first": 1}, listed


def _create(asked: _Asked) -> None:
    overwrite = get_flag(asked.header, "overwrite", default=False)
    if asked.path == ".":
        asked.stream.reply({"created": False, "replaced": False})
        return
    os.close(asked.workspace.make_folders(posixpath.dirname(asked.path) or "."))
    with Document(asked.agent, asked.workspace, asked.path) as document:
        try:
            document.write(asked.text, replace=False)
        except FileExistsError:
            if overwrite:
                document.edit(document.read(), asked.text)
            asked.stream.reply({"created": overwrite, "replaced": overwrite})
            return
    asked.stream.reply({"created": True, "replaced": False})


def _replace(asked: _Asked) -> None:
    split = get_number(asked.header, "split", high=len(asked.text))
    old, new = asked.text[:split], asked.text[split:]
    with Document(asked.agent, asked.workspace, asked.path) as document:
        before = document.read()
        matches = before.count(old)
        if matches != 1:
            asked.stream.reply({"matches": matches})
            return
        at = before.index(old)
        end = at + len(old)
        document.edit(before, before[:at] + new + before[end:])
    # The whole lines around it, as they were and as they are: what a reader wants to see of it.
    start, stop = before.rfind(b"\n", 0, at) + 1, before.find(b"\n", end)
    stop = len(before) if stop < 0 else stop
    was, becomes = before[start:stop], before[start:at] + new + before[end:stop]
    if len(was) + len(becomes) > MAX_PAYLOAD:
        was = becomes = b""
    line = before.count(b"\n", 0, start) + 1
    asked.stream.reply({"matches": 1, "line": line, "split": len(was)}, was + becomes)


def _insert(asked: _Asked) -> None:
    after = get_number(asked.header, "line", low=-_LAST)
    with Document(asked.agent, asked.workspace, asked.path) as document:
        before = document.read()
        lines = _count_lines(before)
        if not 0 <= after <= lines:
            asked.stream.reply({"inserted": False, "lines": lines})
            return
        head = before[: _line_start(before, after)]
        gap = b"\n" if head and not head.endswith(b"\n") else b""
        ended = asked.text if asked.text.endswith(b"\n") else asked.text + b"\n"
        document.edit(before, head + gap + ended + before[len(head) :])
    asked.stream.reply({"inserted": True, "lines": lines})


def _undo(asked: _Asked) -> None:
    with Document(asked.agent, asked.workspace, asked.path) as document:
        content = asked.agent.undo.pop(document.key)
        if content is None:
            asked.stream.reply({"undone": False})
            return
        try:
            with contextlib.suppress(FileNotFoundError, Refused):
                document.read()  # For its mode.
            document.write(content)
        except OSError:
            asked.agent.undo.push(document.key, content)
            raise
    asked.stream.reply({"undone": True})


def _count_lines(content: bytes) -> int:
    return content.count(b"\n") + (1 if content and not content.endswith(b"\n") else 0)


def _line_start(content: bytes, after: int) -> int:
    """Return where the line begins that follows so many."""
    at = 0
    for _ in range(after):
        at = content.find(b"\n", at) + 1
        if at == 0:
            return len(content)
    return at


def _serve(operation: Callable[[_Asked], None]) -> Callable[..., None]:
    """Give an operation its workspace and path. Raises Refused, also for what the operating system refuses."""

    def serve(agent: Agent, stream: Stream, header: Header, payload: bytes) -> None:
        path = header.get("path")
        if not isinstance(path, str):
            raise invalid("path must be a string")
        try:
            workspace = Workspace(agent.workspace_fd, agent.boot.workspace, agent.boot.env.get("HOME", ""))
            path = workspace.relative(path)
            operation(_Asked(agent, stream, header, workspace, path, payload))
        except OSError as error:
            raise refusal(error, path) from error

    return serve


OPERATIONS: dict[str, Callable[[Agent, Stream, Header, bytes], None]] = {
    f"edit.{name}": _serve(operation)
    for name, operation in {
        "view": _view,
        "create": _create,
        "replace": _replace,
        "insert": _insert,
        "undo": _undo,
    }.items()
}
