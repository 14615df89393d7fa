"""The text editor of the wire: view, create, replace, insert and undo. Every edit is atomic.

Contents are bytes: invalid UTF-8 and line ends stay as they are.
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
"""The largest file of which a part can be viewed."""
LEVELS = 2
_QUICK = 1 << 20
"""Bytes that are read in the loop itself; more are read by a worker."""
_LAST = 1 << 62


class _Request(NamedTuple):
    """One requested operation."""

    agent: Agent
    stream: Stream
    header: Header
    workspace: Workspace
    path: str
    text: bytes
    """The payload."""


def _view(request: _Request) -> None:
    first = get_number(request.header, "first", 1, low=1)
    last = get_number(request.header, "last", _LAST)
    whole = "first" not in request.header and "last" not in request.header
    fd = request.workspace.open(request.path, os.O_RDONLY)
    try:
        info = os.fstat(fd)
        if stat.S_ISDIR(info.st_mode):
            ignored = frozenset(request.agent.changes.ignored)
            _work(request, lambda: _list_folder(request.workspace, request.path, ignored), request.workspace.fd)
            return
        check_regular(fd)
        if info.st_size > (MAX_EDITED if whole else MAX_VIEWED):
            raise too_large(request.path, "see a part of it, by its lines" if whole else "use a program")
        if info.st_size > _QUICK:
            _work(request, lambda: _show(fd, request.path, first, last, whole=whole), fd)
        else:
            request.stream.reply(*_show(fd, request.path, first, last, whole=whole))
    finally:
        os.close(fd)


def _work(request: _Request, work: Callable[[], Result], fd: int) -> None:
    Worker(request.agent.loop, request.stream, lambda _in, _out: work(), keep=(fd,), deadline_s=60.0)


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


def _create(request: _Request) -> None:
    overwrite = get_flag(request.header, "overwrite", default=False)
    if request.path == ".":
        request.stream.reply({"created": False, "replaced": False})
        return
    os.close(request.workspace.make_folders(posixpath.dirname(request.path) or "."))
    with Document(request.agent, request.workspace, request.path) as document:
        try:
            document.write(request.text, replace=False)
        except FileExistsError:
            if overwrite:
                document.edit(document.read(), request.text)
            request.stream.reply({"created": overwrite, "replaced": overwrite})
            return
    request.stream.reply({"created": True, "replaced": False})


def _replace(request: _Request) -> None:
    split = get_number(request.header, "split", high=len(request.text))
    old, new = request.text[:split], request.text[split:]
    with Document(request.agent, request.workspace, request.path) as document:
        before = document.read()
        matches = before.count(old)
        if matches != 1:
            request.stream.reply({"matches": matches})
            return
        at = before.index(old)
        end = at + len(old)
        document.edit(before, before[:at] + new + before[end:])
    # The whole lines around it, before and after: what a reader wants to see.
    start, stop = before.rfind(b"\n", 0, at) + 1, before.find(b"\n", end)
    stop = len(before) if stop < 0 else stop
    was, becomes = before[start:stop], before[start:at] + new + before[end:stop]
    if len(was) + len(becomes) > MAX_PAYLOAD:
        was = becomes = b""
    line = before.count(b"\n", 0, start) + 1
    request.stream.reply({"matches": 1, "line": line, "split": len(was)}, was + becomes)


def _insert(request: _Request) -> None:
    after = get_number(request.header, "line", low=-_LAST)
    with Document(request.agent, request.workspace, request.path) as document:
        before = document.read()
        lines = _count_lines(before)
        if not 0 <= after <= lines:
            request.stream.reply({"inserted": False, "lines": lines})
            return
        head = before[: _line_start(before, after)]
        gap = b"\n" if head and not head.endswith(b"\n") else b""
        ended = request.text if request.text.endswith(b"\n") else request.text + b"\n"
        document.edit(before, head + gap + ended + before[len(head) :])
    request.stream.reply({"inserted": True, "lines": lines})


def _undo(request: _Request) -> None:
    with Document(request.agent, request.workspace, request.path) as document:
        content = request.agent.undo.pop(document.key)
        if content is None:
            request.stream.reply({"undone": False})
            return
        try:
            with contextlib.suppress(FileNotFoundError, Refused):
                document.read()  # For its mode.
            document.write(content)
        except OSError:
            request.agent.undo.push(document.key, content)
            raise
    request.stream.reply({"undone": True})


def _count_lines(content: bytes) -> int:
    return content.count(b"\n") + (1 if content and not content.endswith(b"\n") else 0)


def _line_start(content: bytes, after: int) -> int:
    """Return the offset of the line after so many lines."""
    at = 0
    for _ in range(after):
        at = content.find(b"\n", at) + 1
        if at == 0:
            return len(content)
    return at


def _serve(operation: Callable[[_Request], None]) -> Callable[..., None]:
    """Give an operation its workspace and path. Raises Refused, also in place of OSError."""

    def serve(agent: Agent, stream: Stream, header: Header, payload: bytes) -> None:
        path = header.get("path")
        if not isinstance(path, str):
            raise invalid("path must be a string")
        try:
            workspace = Workspace(agent.workspace_fd, agent.boot.workspace, agent.boot.env.get("HOME", ""))
            path = workspace.relative(path)
            operation(_Request(agent, stream, header, workspace, path, payload))
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
