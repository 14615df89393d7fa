"""Documents: text files that are edited atomically, and their earlier contents for undo."""

from __future__ import annotations

import contextlib
import os
import stat
from typing import TYPE_CHECKING, Self

from warren.guest.files.paths import check_regular, open_at, printable, rename, settle
from warren.guest.files.transfer import temporary_name
from warren.guest.wire.frames import MAX_PAYLOAD
from warren.guest.wire.parameters import Refused

if TYPE_CHECKING:
    from warren.guest.agent import Agent
    from warren.guest.files.paths import Workspace

MAX_EDITED = MAX_PAYLOAD
"""The largest file that can be edited, or viewed at once."""
UNDO_BYTES = 8 << 20
UNDO_STEPS = 256

Key = tuple[int, int, str]
"""Identity of a file: device and inode of its folder, and its name there."""


class Undo:
    """Contents of files before their edits, the newest last. Above the bounds the oldest are dropped."""

    def __init__(self) -> None:
        self._steps: list[tuple[Key, bytes]] = []
        self._size = 0

    def push(self, key: Key, content: bytes) -> None:
        """Keep the content of a file before an edit."""
        self._steps.append((key, content))
        self._size += len(content)
        while len(self._steps) > UNDO_STEPS or self._size > UNDO_BYTES:
            self._size -= len(self._steps.pop(0)[1])

    def pop(self, key: Key) -> bytes | None:
        """Remove and return the content of a file before its last edit; None when it is not known."""
        for at in range(len(self._steps) - 1, -1, -1):
            if self._steps[at][0] == key:
                content = self._steps.pop(at)[1]
                self._size -= len(content)
                return content
        return None


class Document:
    """A file that is edited: its open folder, and its name there, with no link left to follow."""

    def __init__(self, agent: Agent, workspace: Workspace, path: str) -> None:
        self._agent = agent
        self._path = path
        self._place, self._name = workspace.open_parent(path, follow=True)
        info = os.fstat(self._place)
        self.key: Key = (info.st_dev, info.st_ino, self._name)
        self._mode = 0o644

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._place)

    def read(self) -> bytes:
        """Return its content. Raises OSError, and Refused for one that is too large."""
        fd = open_at(self._place, self._name, os.O_RDONLY)
        try:
            info = check_regular(fd)
            self._mode = stat.S_IMODE(info.st_mode) & 0o777
            return read_all(fd, info.st_size, self._path)
        finally:
            os.close(fd)

    def write(self, content: bytes, *, replace: bool = True) -> None:
        """Replace its content atomically. Raises OSError: FileExistsError without `replace`."""
        temporary = temporary_name()
        ignored = self._agent.changes.ignored
        ignored.add(temporary)
        try:
            fd = open_at(self._place, temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
            try:
                rest = memoryview(content)
                while rest:
                    rest = rest[os.write(fd, rest) :]
                settle(fd, self._mode)
            finally:
                os.close(fd)
            rename(self._place, temporary, self._place, self._name, replace=replace)
        except OSError:
            with contextlib.suppress(OSError):
                os.unlink(temporary, dir_fd=self._place)
            raise
        finally:
            ignored.discard(temporary)
        self._agent.changes.adopt(self._path)

    def edit(self, before: bytes, after: bytes) -> None:
        """Replace its content and keep the former one for undo."""
        self.write(after)
        self._agent.undo.push(self.key, before)


def read_all(fd: int, size: int, path: str) -> bytes:
    """Return the content of an open file. Raises Refused when it is too large."""
    if size > MAX_EDITED:
        raise too_large(path, "use a program")
    content = bytearray()
    while len(content) <= MAX_EDITED and (piece := os.read(fd, MAX_EDITED + 1 - len(content))):
        content += piece
    if len(content) > MAX_EDITED:
        raise too_large(path, "use a program")
    return bytes(content)


def too_large(path: str, instead: str) -> Refused:
    """Build the refusal of a file, with what to do instead."""
    return Refused("too_large", f"{printable(path)!r} is too large to be seen or edited here: {instead}")
