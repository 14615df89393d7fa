"""Blob storage in a folder. A row of the store names each blob.

Bytes are written before their row and removed after it, so no row is without bytes. Blobs that a crash left without a
row are swept.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import re
import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING

import anyio
from anyio import to_thread

from warren.domain.errors import NotFound, StoreError, TooLarge
from warren.domain.values import KIB, MIB

if TYPE_CHECKING:
    from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Iterable, Iterator
    from collections.abc import Set as AbstractSet

_NAME = re.compile(r"[0-9a-f]{32}")
_FLUSHED = MIB
"""Bytes of a stream that are buffered before a write."""
_PIECE = 256 * KIB
_SWEPT = 100
"""Leftovers that are open at once while they are removed."""


@dataclass(frozen=True, slots=True)
class Blob:
    """A blob: its name, its size, and its SHA-256 in hex."""

    name: str
    size: int
    sha256: str


class Blobs:
    """The blobs of one folder, which is created at first use. Raises StoreError when the disk fails."""

    def __init__(self, folder: str, check_space: Callable[[], None] = lambda: None) -> None:
        """Before each write `check_space` is called; it raises where the disk has no space for one."""
        self._folder = folder
        self._check_space = check_space

    @contextlib.asynccontextmanager
    async def write(self, source: bytes | AsyncIterable[bytes], *, max_bytes: int | None = None) -> AsyncIterator[Blob]:
        """Write a blob, and keep it if the body, which writes its row, succeeds. Raises TooLarge above `max_bytes`."""
        self._check_space()
        draft = await to_thread.run_sync(_Draft, self._folder, max_bytes)
        try:
            if isinstance(source, bytes):
                yield await to_thread.run_sync(draft.finish, source)
            else:
                yield await _copy(source, draft)
        except BaseException:
            with anyio.CancelScope(shield=True):
                await to_thread.run_sync(draft.discard)
            raise
        finally:
            draft.close()

    @contextlib.asynccontextmanager
    async def read(self, name: str) -> AsyncIterator[Reading]:
        """Open a blob; one that is removed meanwhile can be read to its end. Raises NotFound."""
        file = await to_thread.run_sync(self._open, name)
        try:
            yield Reading(file, os.fstat(file).st_size)
        finally:
            os.close(file)

    async def remove(self, *names: str) -> None:
        """Remove blobs; a missing one counts as removed. Their rows must be gone already."""
        await to_thread.run_sync(self._remove, names)

    async def sizes(self) -> dict[str, int]:
        """Return the size of every blob, by name."""
        return await to_thread.run_sync(self._measure)

    async def sweep(self, known: Callable[[], Awaitable[AbstractSet[str]]]) -> int:
        """Remove blobs without a row, and return their number. Blobs that are being written stay."""
        found = await self.sizes()
        lost = sorted(found.keys() - await known()) if found else []
        removed = 0
        # In batches: each is open while it is locked, and a crash may leave more than a process may open.
        for start in range(0, len(lost), _SWEPT):
            with contextlib.ExitStack() as held:
                idle = await to_thread.run_sync(self._lock_all, lost[start : start + _SWEPT], held)
                # Checked again: a blob that was being written may have its row now.
                gone = idle - await known() if idle else set()
                await to_thread.run_sync(self._remove, gone)
            removed += len(gone)
        return removed

    def _open(self, name: str) -> int:
        if _NAME.fullmatch(name) is None:
            raise NotFound("there is no such content")
        try:
            return os.open(os.path.join(self._folder, name), os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except FileNotFoundError:
            raise NotFound("there is no such content") from None
        except OSError as exc:
            raise _failed(self._folder, exc) from exc

    def _measure(self) -> dict[str, int]:
        sizes = {}
        with _explained(self._folder), contextlib.suppress(FileNotFoundError), os.scandir(self._folder) as entries:
            for entry in entries:
                if _NAME.fullmatch(entry.name):
                    with contextlib.suppress(FileNotFoundError):
                        sizes[entry.name] = entry.stat(follow_symlinks=False).st_size
        return sizes

    def _lock_all(self, names: Iterable[str], held: contextlib.ExitStack) -> set[str]:
        locked = set()
        for name in names:
            with contextlib.suppress(NotFound, BlockingIOError):
                file = self._open(name)
                held.callback(os.close, file)
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                locked.add(name)
        return locked

    def _remove(self, names: AbstractSet[str] | tuple[str, ...]) -> None:
        for name in names:
            with _explained(self._folder), contextlib.suppress(FileNotFoundError):
                os.unlink(os.path.join(self._folder, name))


class Reading:
    """An open blob: its size, and its bytes, once."""

    def __init__(self, file: int, size: int) -> None:
        self._file = file
        self.size = size

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """Yield the bytes. Raises StoreError when the disk fails."""
        left = self.size
        while left:
            try:
                piece = await to_thread.run_sync(os.read, self._file, min(left, _PIECE))
            except OSError as exc:
                raise StoreError(f"a kept file cannot be read: {exc.strerror}") from exc
            if not piece:
                raise StoreError("a kept file is shorter than it was")
            left -= len(piece)
            yield piece


class _Draft:
    """A blob that is being written. It is locked until it is closed, so that a sweep skips it."""

    def __init__(self, folder: str, max_bytes: int | None) -> None:
        self._folder = folder
        self._max_bytes = max_bytes
        self._name = secrets.token_hex(16)
        self._hash = hashlib.sha256()
        self._size = 0
        with _explained(folder):
            os.makedirs(folder, mode=0o700, exist_ok=True)
            self._path = os.path.join(folder, self._name)
            self._file = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            fcntl.flock(self._file, fcntl.LOCK_EX)

    def write(self, content: bytes) -> None:
        self._size += len(content)
        if self._max_bytes is not None and self._size > self._max_bytes:
            raise TooLarge(f"the file is larger than {self._max_bytes} bytes")
        self._hash.update(content)
        view = memoryview(content)
        with _explained(self._folder):
            while view:
                view = view[os.write(self._file, view) :]

    def finish(self, content: bytes) -> Blob:
        """Write the rest, and all of it to the disk: it survives this host's power, and a disk that is full later."""
        self.write(content)
        with _explained(self._folder):
            os.fsync(self._file)
            folder = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)
        return Blob(self._name, self._size, self._hash.hexdigest())

    def discard(self) -> None:
        with contextlib.suppress(OSError):
            os.unlink(self._path)

    def close(self) -> None:
        os.close(self._file)


async def _copy(source: AsyncIterable[bytes], draft: _Draft) -> Blob:
    pieces: list[bytes] = []
    size = 0
    async for piece in source:
        pieces.append(piece)
        size += len(piece)
        if size >= _FLUSHED:
            await to_thread.run_sync(draft.write, b"".join(pieces))
            pieces.clear()
            size = 0
    return await to_thread.run_sync(draft.finish, b"".join(pieces))


@contextlib.contextmanager
def _explained(folder: str) -> Iterator[None]:
    try:
        yield
    except OSError as exc:
        raise _failed(folder, exc) from exc


def _failed(folder: str, exc: OSError) -> StoreError:
    return StoreError(f"files cannot be kept in {folder}: {exc.strerror}")
