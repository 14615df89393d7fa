"""Trees: list or delete a folder and all below it, by descriptor. Links are never followed."""

from __future__ import annotations

import errno
import itertools
import json
import os
import stat
from typing import TYPE_CHECKING, Any, NamedTuple

from warren.guest.files.paths import DIRECTORY, Workspace, entry, open_at
from warren.guest.wire.frames import MAX_PAYLOAD

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

_MODULES = "node_modules"
_MAX_DEPTH = 32
"""Folders that a delete holds open at once; deeper ones are moved up first."""


class TooMany(Exception):
    """The tree has more entries than the caller allows."""


class Found(NamedTuple):
    """One entry of a tree: its path in the workspace, and its open folder, valid until the walk goes on."""

    path: str
    info: os.stat_result
    place: int
    name: str

    @property
    def is_folder(self) -> bool:
        """Whether it is a real folder, not a link to one."""
        return stat.S_ISDIR(self.info.st_mode)


class Walk:
    """Walks everything below a folder, in order; iterate over it once."""

    def __init__(
        self,
        workspace: Workspace,
        path: str,
        *,
        ignored: Collection[str] = (),
        hidden: bool = True,
        recursive: bool = True,
        most: int | None = None,
    ) -> None:
        self.complete = True
        """False when an entry could not be read."""
        self._workspace = workspace
        self._path = path
        self._ignored = ignored
        self._hidden = hidden
        self._recursive = recursive
        self._left = most

    def __iter__(self) -> Iterator[Found]:
        """Yield every entry. Raises OSError for the first folder, TooMany when there are more than `most`."""
        folders = [self._path]
        while folders:
            path = folders.pop()
            try:
                place = self._workspace.open(path, DIRECTORY, links=path == self._path)
            except OSError:
                # It is gone, became a link, may not be read, or is deeper than the longest path.
                if path == self._path:
                    raise
                self.complete = False
                continue
            try:
                below = []
                for found in self._entries(path, place):
                    yield found
                    if found.is_folder and self._recursive and (self._hidden or found.name != _MODULES):
                        below.append(found.path)
            finally:
                os.close(place)
            folders += reversed(below)

    def _entries(self, path: str, place: int) -> Iterator[Found]:
        prefix = "" if path == "." else path + "/"
        for name in sorted(self._names(place)):
            if name in self._ignored or (not self._hidden and name.startswith(".")):
                continue
            try:
                info = os.stat(name, dir_fd=place, follow_symlinks=False)
            except FileNotFoundError:
                continue
            yield Found(prefix + name, info, place, name)

    def _names(self, place: int) -> list[str]:
        if self._left is None:
            return os.listdir(place)
        with os.scandir(place) as entries:
            names = [item.name for item in itertools.islice(entries, self._left + 1)]
        self._left -= len(names)
        if self._left < 0:
            raise TooMany
        return names


def list_entries(walk: Walk, limit: int) -> tuple[dict[str, Any], bytes]:
    """Build the answer of `fs.list`: at most `limit` entries, sorted by path."""
    entries: list[dict[str, Any]] = []
    complete = True
    for found in walk:
        if len(entries) >= limit:
            complete = False
            break
        entries.append(entry(found.path, found.info, _target(found)))
    entries.sort(key=lambda item: str(item["path"]))
    payload, fits = encode_list(entries)
    return {"complete": complete and fits and walk.complete}, payload


def _target(found: Found) -> str | None:
    if not stat.S_ISLNK(found.info.st_mode):
        return None
    try:
        return os.readlink(found.name, dir_fd=found.place)
    except OSError:
        return None


def encode_list(items: Iterable[dict[str, Any]]) -> tuple[bytes, bool]:
    """Encode as many items as one frame carries; False when some were left out."""
    parts: list[bytes] = []
    size = 2
    for item in items:
        part = json.dumps(item, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "surrogatepass")
        size += len(part) + 1
        if size > MAX_PAYLOAD:
            return b"[" + b",".join(parts) + b"]", False
        parts.append(part)
    return b"[" + b",".join(parts) + b"]", True


def delete_tree(place: int, name: str) -> int:
    """Delete `name` in the open folder `place`, and everything below; return the number of entries.

    Each step is one name in an open folder, so a folder that is swapped for a link meanwhile is unlinked as a link.
    """
    if not _is_folder(place, name):
        os.unlink(name, dir_fd=place)
        return 1
    top = open_at(place, name, DIRECTORY)
    try:
        deleted = _empty(top)
    finally:
        os.close(top)
    os.rmdir(name, dir_fd=place)
    return deleted + 1


def _empty(top: int) -> int:
    deleted = 0
    numbers = itertools.count()
    trail: list[tuple[int, str]] = [(top, "")]
    try:
        while True:
            place, name = trail[-1]
            folder = None
            for child in os.listdir(place):
                if not _unlink(place, child):
                    folder = child
                    break
                deleted += 1
            if folder is None:
                if len(trail) == 1:
                    return deleted
                os.close(place)
                trail.pop()
                os.rmdir(name, dir_fd=trail[-1][0])
                deleted += 1
            elif len(trail) > _MAX_DEPTH:
                # WHY: a tree can be deeper than there are descriptors; moved to the top it is an ordinary folder.
                os.rename(folder, f".deep-{os.getpid()}-{next(numbers)}", src_dir_fd=place, dst_dir_fd=top)
            else:
                trail.append((open_at(place, folder, DIRECTORY), folder))
    finally:
        for place, _ in trail[1:]:
            os.close(place)


def _unlink(place: int, name: str) -> bool:
    try:
        os.unlink(name, dir_fd=place)
    except FileNotFoundError:
        return True
    except OSError as error:
        if error.errno not in {errno.EISDIR, errno.EPERM} or not _is_folder(place, name):
            raise
        return False
    return True


def _is_folder(place: int, name: str) -> bool:
    return stat.S_ISDIR(os.stat(name, dir_fd=place, follow_symlinks=False).st_mode)
