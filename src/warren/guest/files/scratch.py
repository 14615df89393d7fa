"""Scratch folders in /tmp: empty when a program starts; its files can be read after it has ended.

Only where /tmp is the sandbox's own. Everything goes by descriptor, and no link is followed.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import re
from typing import TYPE_CHECKING, Any

from warren.guest.files.paths import DIRECTORY, PLACE, Workspace, check_regular, entry, open_at, refusal
from warren.guest.files.transfer import Reading, temporary_name
from warren.guest.files.tree import TooMany, Walk, delete_tree
from warren.guest.files.worker import detach
from warren.guest.system.loop import nothing
from warren.guest.wire.parameters import Refused, get_strings, get_text, invalid

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from warren.guest.agent import Agent
    from warren.guest.system.loop import Loop
    from warren.guest.wire.frames import Header
    from warren.guest.wire.streams import Stream

ROOT = "/tmp"
MAX_FOLDERS = 8
MAX_COLLECTED = 1000
_MAX_WALKED = 10_000
_QUICK = 64
"""Files that are removed in the loop itself; more are removed by a worker."""
_FOLDER = re.compile(r"/tmp/[A-Za-z0-9_-][A-Za-z0-9_.-]{0,63}")
_NOT_OURS = "this engine shares /tmp with the host: nothing in it is emptied or read"


def check_folder(folder: str) -> str:
    """Return the path of a folder directly in /tmp. Raises Refused."""
    if _FOLDER.fullmatch(folder) is None:
        raise invalid(f"{folder[:100]!r} is not a folder directly in /tmp")
    return folder


def make_empty(loop: Loop, folders: Iterable[str]) -> None:
    """Make each of these folders, empty. One that fails is left as it is, and the program gets the error."""
    with _root() as place:
        for folder in folders:
            with contextlib.suppress(OSError):
                _renew(loop, place, os.path.basename(folder))


def collect(folder: str) -> tuple[list[dict[str, Any]], bool]:
    """List the files in a folder and below; returns whether the list is complete too."""
    entries: list[dict[str, Any]] = []
    try:
        with _open(folder) as top:
            walk = Walk(top, ".", most=_MAX_WALKED)
            for found in walk:
                if len(entries) >= MAX_COLLECTED:
                    return _sorted(entries), False
                if not found.is_folder:
                    entries.append(entry(found.path, found.info))
            return _sorted(entries), walk.complete
    except TooMany:
        return _sorted(entries), False
    except OSError:
        return [], True


def _sorted(entries: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(entries, key=lambda item: str(item["path"]))


def _renew(loop: Loop, place: int, name: str) -> None:
    try:
        os.mkdir(name, 0o755, dir_fd=place)
    except FileExistsError:
        if _empty_quickly(place, name):
            return
        # Renamed as a whole: its content may take long to delete, or resist.
        hidden = temporary_name()
        os.rename(name, hidden, src_dir_fd=place, dst_dir_fd=place)
        os.mkdir(name, 0o755, dir_fd=place)
        detach(loop, lambda: _delete(place, hidden), (place,), nothing)


def _delete(place: int, name: str) -> None:
    """Delete a renamed folder, in a worker; folders that a program locked are unlocked first."""
    with contextlib.suppress(OSError):
        try:
            delete_tree(place, name)
        except PermissionError:
            _unlock(os.path.join(ROOT, name))
            delete_tree(place, name)


def _unlock(top: str) -> None:
    # SAFE BECAUSE: the program owns all of it; a folder swapped for a link changes a mode that it could change itself.
    os.chmod(top, 0o700)
    for path, folders, _ in os.walk(top):
        for folder in folders:
            below = os.path.join(path, folder)
            if not os.path.islink(below):
                os.chmod(below, 0o700)


def _empty_quickly(place: int, name: str) -> bool:
    """Remove the files of a folder; False when there are many, or other things."""
    try:
        folder = open_at(place, name, DIRECTORY)
    except OSError:
        return False
    try:
        with os.scandir(folder) as found:
            names = [each.name for each in itertools.islice(found, _QUICK + 1)]
        if len(names) > _QUICK:
            return False
        for each in names:
            os.unlink(each, dir_fd=folder)
    except OSError:
        return False
    finally:
        os.close(folder)
    return True


@contextlib.contextmanager
def _root() -> Any:
    place = os.open(ROOT, PLACE | os.O_CLOEXEC)
    try:
        yield place
    finally:
        os.close(place)


@contextlib.contextmanager
def _open(folder: str) -> Any:
    with _root() as place:
        fd = open_at(place, os.path.basename(folder), DIRECTORY)
    try:
        yield Workspace(fd, folder)
    finally:
        os.close(fd)


def _read(agent: Agent, stream: Stream, header: Header, _payload: bytes) -> None:
    folder = check_folder(get_text(header, "folder"))
    _check_contained(agent)
    name = get_text(header, "path")
    try:
        with _open(folder) as top:
            fd = top.open(top.relative(name), os.O_RDONLY | os.O_NOFOLLOW, links=False)
        try:
            info = check_regular(fd)
        except OSError:
            os.close(fd)
            raise
    except OSError as error:
        raise refusal(error, name) from error
    stream.event({"kind": "stat", "entry": entry(name, info)})
    Reading(agent.loop, stream, fd, 0, info.st_size)


def _empty(agent: Agent, stream: Stream, header: Header, _payload: bytes) -> None:
    folders = [check_folder(folder) for folder in get_strings(header, "folders")[:MAX_FOLDERS]]
    _check_contained(agent)
    make_empty(agent.loop, folders)
    stream.reply()


def _check_contained(agent: Agent) -> None:
    if not agent.boot.contained:
        raise Refused("unsupported", _NOT_OURS)


OPERATIONS: dict[str, Callable[[Agent, Stream, Header, bytes], None]] = {"scratch.read": _read, "scratch.empty": _empty}
