"""Transfers: one file read or written by a stream, chunk by chunk in the agent's loop."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING, Any

from warren.guest.files.paths import check_regular, entry, open_at, refusal, rename, settle, sync_file, sync_folder
from warren.guest.files.worker import Worker
from warren.guest.wire.frames import CHUNK
from warren.guest.wire.parameters import Refused
from warren.guest.wire.pump import CHUNKS_A_ROUND, may_send

if TYPE_CHECKING:
    from warren.guest.agent import Agent
    from warren.guest.files.paths import Workspace
    from warren.guest.system.loop import Loop
    from warren.guest.wire.streams import Stream


def temporary_name() -> str:
    """Return a hidden, unused and unguessable name."""
    return f".warren-{os.urandom(8).hex()}"


class Reading:
    """Sends a part of a file, by position: a file that shrinks meanwhile ends early."""

    def __init__(self, loop: Loop, stream: Stream, fd: int, offset: int, length: int) -> None:
        self._loop = loop
        self._stream = stream
        self._fd = fd
        self._offset = offset
        self._left = length
        self._sent = 0
        stream.on_close = self._close
        self._step()

    def _step(self) -> None:
        for _ in range(CHUNKS_A_ROUND):
            if not may_send(self._stream, self._step):
                return
            try:
                size = min(CHUNK, self._left, self._stream.credit)
                data = os.pread(self._fd, size, self._offset) if size else b""
            except OSError as error:
                refused = refusal(error, "the file")
                self._stream.fail(refused.code, str(refused))
                self._close()
                return
            if not data:
                self._stream.send_eof()
                self._stream.reply({"size": self._sent})
                self._close()
                return
            self._offset += len(data)
            self._left -= len(data)
            self._sent += len(data)
            self._stream.send(data)
        self._loop.call_soon(self._step)

    def _close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class Writing:
    """Receives a file's content: into a hidden file that is then renamed, or appended to an existing one."""

    def __init__(
        self, workspace: Workspace, agent: Agent, stream: Stream, path: str, *, mode: int, create: str, sync: bool
    ) -> None:
        self._loop = agent.loop
        self._changes = agent.changes
        self._sync = sync
        self._stream = stream
        self._path = path
        self._mode = mode & 0o777
        self._create = create
        self._place, self._name = workspace.open_parent(path, follow=create != "exclusive")
        self._temporary = None if create == "append" else temporary_name()
        try:
            self._fd = self._open()
        except OSError:
            os.close(self._place)
            raise
        stream.on_data, stream.on_eof, stream.on_close = self._write, self._finish, self._abandon

    def _open(self) -> int:
        if self._temporary is not None:
            fd = open_at(self._place, self._temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
            self._changes.ignored.add(self._temporary)
            return fd
        fd = open_at(self._place, self._name, os.O_WRONLY | os.O_CREAT | os.O_APPEND, self._mode)
        try:
            check_regular(fd)
        except OSError:
            os.close(fd)
            raise
        return fd

    def _write(self, data: bytes) -> None:
        rest = memoryview(data)
        try:
            while rest:
                rest = rest[os.write(self._fd, rest) :]
        except OSError as error:
            self._fail(error)
            return
        self._stream.consumed(len(data))

    def _finish(self) -> None:
        if self._sync:
            self._finish_apart()
            return
        try:
            body = self._place_file()
        except OSError as error:
            self._fail(error)
            return
        self._end()
        self._stream.reply(body)

    def _finish_apart(self) -> None:
        """Finish in a worker: the disk of the host may take seconds."""
        keep = (self._fd, self._place)
        try:
            Worker(
                self._loop, self._stream, lambda _in, _out: (self._place_durably(), b""), keep=keep, on_end=self._end
            )
        except Refused as refused:
            self._abandon()
            self._stream.fail(refused.code, str(refused))
        except OSError as error:
            self._fail(error)

    def _place_file(self) -> dict[str, Any]:
        """Give the file its name. Returns the fields of the answer."""
        if self._temporary is not None:
            settle(self._fd, self._mode)
            rename(self._place, self._temporary, self._place, self._name, replace=self._create == "replace")
        return {"entry": entry(self._path, os.fstat(self._fd))}

    def _place_durably(self) -> dict[str, Any]:
        """Do the same with the file on the disk before it replaces another, and its folder after it."""
        try:
            sync_file(self._fd)
            body = self._place_file()
            sync_folder(self._place)
        except OSError as error:
            raise refusal(error, self._path) from error
        return body

    def _end(self) -> None:
        self._abandon()
        self._changes.adopt(self._path)

    def _fail(self, error: OSError) -> None:
        self._abandon()
        refused = refusal(error, self._path)
        self._stream.fail(refused.code, str(refused))

    def _abandon(self) -> None:
        """Close everything; a hidden file that was not renamed is removed."""
        if self._fd < 0:
            return
        if self._temporary is not None:
            with contextlib.suppress(OSError):
                os.unlink(self._temporary, dir_fd=self._place)
            self._changes.ignored.discard(self._temporary)
        os.close(self._fd)
        os.close(self._place)
        self._fd = -1
