"""File operations of the wire: each checks its parameters, then works in the loop or in a worker."""

from __future__ import annotations

import contextlib
import json
import os
import posixpath
import stat
from typing import TYPE_CHECKING

from warren.guest.files import archive
from warren.guest.files.paths import Workspace, check_regular, entry, refusal, rename
from warren.guest.files.search import SECONDS, search
from warren.guest.files.transfer import Reading, Writing, temporary_name
from warren.guest.files.tree import TooMany, Walk, delete_tree, list_entries
from warren.guest.files.unpack import unpack
from warren.guest.files.worker import Worker, detach
from warren.guest.wire.parameters import Refused, get_choice, get_flag, get_number, get_text

if TYPE_CHECKING:
    from collections.abc import Callable

    from warren.guest.agent import Agent
    from warren.guest.wire.frames import Header
    from warren.guest.wire.streams import Stream

MAX_LISTED = 100_000
_QUICK = 400
"""Entries that are listed in the loop itself: takes about as long as starting a worker."""


def _stat(_agent: Agent, stream: Stream, header: Header, workspace: Workspace, path: str) -> None:
    follow = get_flag(header, "follow", default=True)
    fd = workspace.open(path, os.O_PATH | (0 if follow else os.O_NOFOLLOW))
    try:
        info = os.fstat(fd)
        target = os.readlink("", dir_fd=fd) if stat.S_ISLNK(info.st_mode) else None
    finally:
        os.close(fd)
    stream.reply({"entry": entry(path, info, target)})


def _list(agent: Agent, stream: Stream, header: Header, workspace: Workspace, path: str) -> None:
    recursive, hidden = get_flag(header, "recursive", default=False), get_flag(header, "hidden", default=True)
    limit = get_number(header, "limit", 10_000, low=1, high=MAX_LISTED)
    ignored = frozenset(agent.changes.ignored)

    def walk(most: int | None) -> Walk:
        return Walk(workspace, path, ignored=ignored, hidden=hidden, recursive=recursive, most=most)

    try:
        stream.reply(*list_entries(walk(_QUICK), limit))
    except TooMany:
        Worker(agent.loop, stream, lambda _in, _out: list_entries(walk(None), limit), keep=(workspace.fd,))


def _read(agent: Agent, stream: Stream, header: Header, workspace: Workspace, path: str) -> None:
    offset = get_number(header, "offset", 0)
    follow = get_flag(header, "follow", default=True)
    fd = workspace.open(path, os.O_RDONLY | (0 if follow else os.O_NOFOLLOW))
    try:
        info = check_regular(fd)
        length = get_number(header, "length", max(0, info.st_size - offset))
    except (OSError, Refused):
        os.close(fd)
        raise
    stream.event({"kind": "stat", "entry": entry(path, info)})
    Reading(agent.loop, stream, fd, offset, length)


def _write(agent: Agent, stream: Stream, header: Header, workspace: Workspace, path: str) -> None:
    mode = get_number(header, "mode", 0o644, high=0o7777)
    create = get_choice(header, "create", ("replace", "exclusive", "append"), "replace")
    if get_flag(header, "parents", default=True):
        os.close(workspace.make_folders(posixpath.dirname(path) or "."))
    sync = get_flag(header, "sync", default=False)
    Writing(workspace, agent, stream, path, mode=mode, create=create, sync=sync)


def _mkdir(agent: Agent, stream: Stream, header: Header, workspace: Workspace, path: str) -> None:
    if get_flag(header, "parents", default=True):
        fd = workspace.make_folders(path)
    else:
        parent, name = workspace.open_parent(path, follow=False)
        try:
            os.mkdir(name, 0o755, dir_fd=parent)
        finally:
            os.close(parent)
        fd = workspace.open(path, os.O_PATH)
    info = os.fstat(fd)
    os.close(fd)
    agent.changes.adopt(path)
    stream.reply({"entry": entry(path, info)})


def _move(agent: Agent, stream: Stream, header: Header, workspace: Workspace, path: str) -> None:
    to = workspace.relative(get_text(header, "to"))
    source, name = workspace.open_parent(path, follow=False)
    try:
        place, new_name = _naming(to, workspace)
        try:
            os.stat(name, dir_fd=source, follow_symlinks=False)
            try:
                rename(source, name, place, new_name, replace=get_flag(header, "overwrite", default=False))
            except OSError as error:
                raise refusal(error, to) from error
            info = os.stat(new_name, dir_fd=place, follow_symlinks=False)
        finally:
            os.close(place)
    finally:
        os.close(source)
    agent.changes.adopt(path)
    agent.changes.adopt(to)
    stream.reply({"entry": entry(to, info)})


def _naming(path: str, workspace: Workspace) -> tuple[int, str]:
    """Open the parent of a second path, so that an error names that one."""
    try:
        return workspace.open_parent(path, follow=False)
    except OSError as error:
        raise refusal(error, posixpath.dirname(path)) from error


def _delete(agent: Agent, stream: Stream, header: Header, workspace: Workspace, path: str) -> None:
    recursive = get_flag(header, "recursive", default=False)
    parent, name = workspace.open_parent(path, follow=False)
    try:
        if not stat.S_ISDIR(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode):
            os.unlink(name, dir_fd=parent)
        elif not recursive:
            os.rmdir(name, dir_fd=parent)
        else:
            Worker(
                agent.loop,
                stream,
                lambda _in, _out: ({"deleted": delete_tree(parent, name)}, b""),
                keep=(parent,),
                on_end=lambda: agent.changes.adopt(path),
            )
            return
    finally:
        os.close(parent)
    agent.changes.adopt(path)
    stream.reply({"deleted": 1})


def _search(agent: Agent, stream: Stream, header: Header, workspace: Workspace, path: str) -> None:
    name, literal, regex = (get_text(header, key) if key in header else None for key in ("name", "text", "regex"))
    limit = get_number(header, "limit", 1000, low=1, high=MAX_LISTED)
    walk = Walk(workspace, path, ignored=frozenset(agent.changes.ignored))
    Worker(
        agent.loop,
        stream,
        lambda _in, _out: search(walk, name, literal, regex, limit),
        keep=(workspace.fd,),
        deadline_s=SECONDS * 1.5,
    )


def _pack(agent: Agent, stream: Stream, header: Header, workspace: Workspace, path: str) -> None:
    kind = get_choice(header, "format", archive.FORMATS, "tar")
    # A path that cannot be packed is refused before the first byte; a member, after it.
    os.close(workspace.open(path, os.O_PATH))
    walk = Walk(workspace, path, ignored=frozenset(agent.changes.ignored))
    Worker(
        agent.loop,
        stream,
        lambda _in, out: ({"entries": archive.pack(workspace, path, kind, walk, out)}, b""),
        keep=(workspace.fd,),
        sends=True,
        deadline_s=None,
    )


def _unpack(agent: Agent, stream: Stream, header: Header, workspace: Workspace, path: str) -> None:
    kind = get_choice(header, "format", archive.FORMATS, "tar")
    sync = get_flag(header, "sync", default=False)
    temporary = temporary_name()
    agent.changes.ignored.add(temporary)

    def ended() -> None:
        agent.changes.adopt(path)
        # A killed worker leaves its hidden folder.
        left = posixpath.join(agent.boot.workspace, path, temporary)
        if os.path.lexists(left):
            detach(agent.loop, lambda: _clear(workspace, path, temporary), (workspace.fd,), forget)
        else:
            forget()

    def forget() -> None:
        agent.changes.ignored.discard(temporary)

    try:
        Worker(
            agent.loop,
            stream,
            lambda source, _out: ({"entries": unpack(workspace, path, kind, temporary, source, sync=sync)}, b""),
            keep=(workspace.fd,),
            takes=True,
            deadline_s=None,
            on_end=ended,
        )
    except Refused:
        forget()
        raise


def _clear(workspace: Workspace, path: str, name: str) -> None:
    with contextlib.suppress(OSError):
        delete_tree(workspace.open(path, os.O_PATH), name)


def _changes(agent: Agent, stream: Stream, _header: Header, _workspace: Workspace, _path: str) -> None:
    changed, complete = agent.changes.scan()
    payload = json.dumps(changed, ensure_ascii=False).encode("utf-8", "surrogatepass")
    stream.reply({"complete": complete}, payload)


def _serve(operation: Callable[[Agent, Stream, Header, Workspace, str], None]) -> Callable[..., None]:
    """Give an operation its workspace and path. Raises Refused, also in place of OSError."""

    def serve(agent: Agent, stream: Stream, header: Header, _payload: bytes) -> None:
        path = "."
        try:
            workspace = Workspace(agent.workspace_fd, agent.boot.workspace, agent.boot.env.get("HOME", ""))
            path = workspace.relative(get_text(header, "path", "."))
            operation(agent, stream, header, workspace, path)
        except OSError as error:
            raise refusal(error, path) from error

    return serve


OPERATIONS: dict[str, Callable[[Agent, Stream, Header, bytes], None]] = {
    f"fs.{name}": _serve(operation)
    for name, operation in {
        "stat": _stat,
        "list": _list,
        "read": _read,
        "write": _write,
        "mkdir": _mkdir,
        "move": _move,
        "delete": _delete,
        "search": _search,
        "pack": _pack,
        "unpack": _unpack,
        "changes": _changes,
    }.items()
}
