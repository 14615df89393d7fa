"""Package store: files by their hash. A file is kept only if it has the hash that an index named.

<folder>/incoming/   downloads in progress; what a crash left is swept when the service opens
<folder>/files/      by digest: complete, checked, read-only
<folder>/pages/      pages of indexes, one file each
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import secrets
import time
from typing import TYPE_CHECKING

from warren.core.packages.sources import SIZES, Digest
from warren.domain.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Iterator

_PARTS = ("incoming", "files", "pages")
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
_PAGE_SHARE = 20
"""Pages may use this fraction of the cache: one part in 20."""


class PackageStore:
    """The folder. Its methods block on the disk: call them in a thread. All raise StoreError when it fails."""

    def __init__(self, folder: str, cache_bytes: int) -> None:
        self._folder = folder
        self._cache_bytes = cache_bytes
        self._page_bytes = 0
        self.used_bytes = 0
        """Of all files."""

    def open(self) -> None:
        """Create the folder, sweep what a crash left, and measure the files."""
        with explained(self._folder):
            for part in _PARTS:
                os.makedirs(self._path(part), mode=0o700, exist_ok=True)
            for entry in os.scandir(self._path("incoming")):
                _sweep(entry.path)
            self.used_bytes = sum(entry.stat().st_size for entry in os.scandir(self._path("files")))
            self._page_bytes = sum(entry.stat().st_size for entry in os.scandir(self._path("pages")))

    def find(self, digest: Digest) -> int | None:
        """Open a cached file as a descriptor, and note its use; None without one."""
        path = self._path("files", _name(digest))
        try:
            file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        except OSError as exc:
            raise _failed(self._folder, exc) from exc
        with contextlib.suppress(OSError):
            _note_use(file)
        return file

    def begin(self) -> Incoming:
        """Open a file to write to."""
        with explained(self._folder):
            return Incoming(self._path("incoming", secrets.token_hex(16)))

    def keep(self, incoming: Incoming, digest: Digest) -> bool:
        """Keep a download if it has that digest, and evict others for it; else discard it and return False."""
        if incoming.hash(digest.algorithm) != digest.value:
            return False
        target = self._path("files", _name(digest))
        with explained(self._folder):
            incoming.settle()
            is_new = not os.path.exists(target)
            os.rename(incoming.path, target)
            _flush_folder(os.path.dirname(target))
        if is_new:
            self.used_bytes += incoming.size
            if self.used_bytes > self._cache_bytes:
                self.used_bytes = _shrink(self._path("files"), self._cache_bytes, target)
        return True

    def read_page(self, name: str) -> bytes | None:
        """Return a cached page; None without one. `name` is a hash of the service's."""
        try:
            with open(self._path("pages", name), "rb") as file:
                _note_use(file.fileno())
                return file.read()
        except FileNotFoundError:
            return None
        except OSError as exc:
            raise _failed(self._folder, exc) from exc

    def write_page(self, name: str, content: bytes) -> None:
        """Replace a cached page."""
        with explained(self._folder):
            temporary = self._path("incoming", secrets.token_hex(16))
            try:
                with open(temporary, "xb") as file:
                    file.write(content)
                    file.flush()
                    _note_use(file.fileno())
                    os.fsync(file.fileno())
                os.rename(temporary, self._path("pages", name))
            except BaseException:
                with contextlib.suppress(OSError):
                    os.unlink(temporary)
                raise
        self._page_bytes += len(content)
        if self._page_bytes > self._cache_bytes // _PAGE_SHARE:
            self._page_bytes = _shrink(self._path("pages"), self._cache_bytes // _PAGE_SHARE, "")

    def _path(self, *parts: str) -> str:
        return os.path.join(self._folder, *parts)


class Incoming:
    """A file that is being downloaded."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.size = 0
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o400)
        fcntl.flock(self._file, fcntl.LOCK_EX)
        self._hashes = {name: hashlib.new(name) for name in SIZES}

    def want(self, algorithm: str) -> None:
        """Choose the hash, before the first write; no other is computed."""
        self._hashes = {algorithm: hashlib.new(algorithm, usedforsecurity=False)}

    def write(self, content: bytes) -> None:
        """Append bytes. Raises StoreError."""
        for one in self._hashes.values():
            one.update(content)
        view = memoryview(content)
        with explained(os.path.dirname(self.path)):
            while view:
                view = view[os.write(self._file, view) :]
        self.size += len(content)

    def hash(self, algorithm: str) -> str:
        """Return the hash of what was written."""
        return self._hashes[algorithm].hexdigest()

    def read(self, start: int, size: int) -> bytes:
        """Read back what was written."""
        return os.pread(self._file, size, start)

    def settle(self) -> None:
        """Sync the file to disk."""
        _note_use(self._file)
        os.fsync(self._file)

    def discard(self) -> None:
        """Remove the file, unless it was kept."""
        with contextlib.suppress(OSError):
            os.unlink(self.path)

    def close(self) -> None:
        """Close the file; all readers must be done."""
        os.close(self._file)


def _note_use(file: int) -> None:
    """Note the use of a file, with the system clock: file system timestamps are milliseconds coarse."""
    now = time.time_ns()
    os.utime(file, ns=(now, now))


def _shrink(folder: str, most: int, spared: str) -> int:
    """Remove the least recently used files until at most that many bytes are left; return the size of the rest."""
    found = []
    for entry in os.scandir(folder):
        with contextlib.suppress(FileNotFoundError):
            info = entry.stat(follow_symlinks=False)
            found.append((info.st_mtime_ns, info.st_size, entry.path))
    used = sum(size for _, size, _ in found)
    for _, size, path in sorted(found):
        if used <= most:
            break
        if path != spared:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)
            used -= size
    return used


def _sweep(path: str) -> None:
    """Remove downloads that no process writes: another service may share the folder."""
    with contextlib.suppress(FileNotFoundError, BlockingIOError):
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.unlink(path)
        finally:
            os.close(file)


def _name(digest: Digest) -> str:
    assert len(digest.value) == SIZES[digest.algorithm]
    return str(digest)


def _flush_folder(path: str) -> None:
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


@contextlib.contextmanager
def explained(folder: str) -> Iterator[None]:
    """Translate OSError into StoreError with a sentence."""
    try:
        yield
    except OSError as exc:
        raise _failed(folder, exc) from exc


def _failed(folder: str, exc: OSError) -> StoreError:
    if exc.errno in _FULL:
        return StoreError("packages cannot be kept: the disk of the service is full")
    return StoreError(f"packages cannot be kept in {folder}: {exc.strerror}")
