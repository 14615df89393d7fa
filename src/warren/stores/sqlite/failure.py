"""SQLite errors as sentences for the operator."""

from __future__ import annotations

import contextlib
import sqlite3
from typing import TYPE_CHECKING

from warren.domain.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Iterator

_MEANINGS = {
    sqlite3.SQLITE_FULL: "there is no room left for {path}: make room on its disk",
    sqlite3.SQLITE_CORRUPT: "{path} is damaged: restore a backup of it, or move it away to start empty",
    sqlite3.SQLITE_NOTADB: "{path} is no database: restore a backup of it, or move it away to start empty",
    sqlite3.SQLITE_BUSY: "{path} is locked by another process: wait for it or end it",
    sqlite3.SQLITE_LOCKED: "{path} is locked by another process: wait for it or end it",
    sqlite3.SQLITE_READONLY: "{path} cannot be written to: make the file and its folder writable for this user",
    sqlite3.SQLITE_PERM: "{path} cannot be opened: make the file and its folder accessible for this user",
    sqlite3.SQLITE_AUTH: "{path} cannot be opened: make the file and its folder accessible for this user",
    sqlite3.SQLITE_CANTOPEN: "{path} cannot be opened: make sure that it is a file in a folder this user may write to",
    sqlite3.SQLITE_NOMEM: "there is no memory left to work on {path}",
}
# WHY: a full file system answers so when the index of the log, which is mapped memory, has to grow.
_NO_ROOM = frozenset({sqlite3.SQLITE_IOERR_SHMSIZE, sqlite3.SQLITE_IOERR_SHMMAP, sqlite3.SQLITE_IOERR_SHMOPEN})


def explain(error: sqlite3.Error, path: str) -> StoreError:
    """Build the StoreError for an error of SQLite."""
    code = getattr(error, "sqlite_errorcode", None)
    if code is None:
        return StoreError(f"{path}: {error}")
    if code in _NO_ROOM:
        return StoreError(_MEANINGS[sqlite3.SQLITE_FULL].format(path=path))
    meaning = _MEANINGS.get(code & 0xFF)
    if meaning is not None:
        return StoreError(meaning.format(path=path))
    if code & 0xFF == sqlite3.SQLITE_IOERR:
        return StoreError(f"{path} could not be read or written ({error.sqlite_errorname}): look at its disk")
    return StoreError(f"{path}: {error}")


def is_locked(error: Exception) -> bool:
    """Whether another process has held the file for longer than the timeout."""
    code: int | None = getattr(error, "sqlite_errorcode", None)
    return code is not None and code & 0xFF in {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}


def damaged(path: str, what: str) -> StoreError:
    """Build the StoreError for content that Warren never writes."""
    return StoreError(f"{path} is damaged ({what}): restore a backup of it, or move it away to start empty")


@contextlib.contextmanager
def explaining(path: str) -> Iterator[None]:
    """Translate errors of SQLite and of the file system into StoreError."""
    try:
        yield
    except sqlite3.Error as exc:
        raise explain(exc, path) from exc
    except OSError as exc:
        raise StoreError(f"{exc.filename or path} cannot be used: {exc.strerror}") from exc
