"""Signing keys of shared links: a file with a key a line; the first signs, all verify."""

from __future__ import annotations

import os
import re
import secrets

from warren.core.shared_links.signing import KEY_BYTES
from warren.domain.errors import StoreError

MAX_KEYS = 16
_LINE = re.compile(r"[0-9a-f]{64}")


class SigningKeys:
    """The keys of a file, which is created at first use, and read again when it changes.

    To rotate, put a new line first, and remove the old ones once their links have expired. To revoke every link at
    once, remove the file. Without a path, the key lives as long as this process.
    """

    def __init__(self, path: str | None = None) -> None:
        self._path = path
        self._seen: tuple[int, int, int] | None = None
        """Inode, size and time of change of the file that was read."""
        self._keys: tuple[bytes, ...] = () if path else (secrets.token_bytes(KEY_BYTES),)

    def signing(self) -> bytes:
        """Return the key that signs, created if there is none. Raises StoreError."""
        if not self.verifying():
            self._make()
        return self.verifying()[0]

    def verifying(self) -> tuple[bytes, ...]:
        """Return every key whose links are valid. Raises StoreError."""
        if self._path is None:
            return self._keys
        try:
            found = os.stat(self._path)
            seen = found.st_ino, found.st_size, found.st_mtime_ns
            if seen != self._seen:
                self._keys = _read(self._path)
                self._seen = seen
        except FileNotFoundError:
            self._keys, self._seen = (), None
        except OSError as exc:
            raise StoreError(f"{self._path}, which signs links, cannot be read: {exc.strerror}") from exc
        return self._keys

    def _make(self) -> None:
        assert self._path is not None
        temporary = f"{self._path}.{secrets.token_hex(8)}"
        try:
            fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            with os.fdopen(fd, "w") as file:
                file.write(f"{secrets.token_hex(KEY_BYTES)}\n")
                file.flush()
                os.fsync(file.fileno())
            try:
                # WHY: another process may be creating the file too; the first link() wins for both.
                os.link(temporary, self._path)
            except FileExistsError:
                pass  # The other process was faster.
            finally:
                os.unlink(temporary)
        except OSError as exc:
            raise StoreError(f"{self._path}, which signs links, cannot be written: {exc.strerror}") from exc


def _read(path: str) -> tuple[bytes, ...]:
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    with os.fdopen(fd, encoding="ascii", errors="replace") as file:
        if os.fstat(file.fileno()).st_mode & 0o077:
            raise StoreError(f"{path} signs links and others can read it: run `chmod 600` on it, or remove it")
        lines = [line.strip() for line in file.read(65 * (MAX_KEYS + 1)).splitlines() if line.strip()]
    if not lines or len(lines) > MAX_KEYS or not all(map(_LINE.fullmatch, lines)):
        raise StoreError(f"{path} must have 1 to {MAX_KEYS} lines of 64 hexadecimal digits: repair it, or remove it")
    return tuple(map(bytes.fromhex, lines))
