"""SQLite file, its connections, and the secret beside it.

<data_dir>/warren.db     everything; readable by its owner alone (beside it SQLite's own warren.db-wal and -shm)
<data_dir>/audit.key     the secret of the audit chain: write access to the database alone cannot forge a row

Order on a first start: schema, head of the chain, secret. A secret without the others proves a changed file.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import sqlite3
import stat
import urllib.parse
from typing import TYPE_CHECKING

from warren.domain.errors import StoreError
from warren.domain.values import MIB
from warren.stores.encoding import load_mapping
from warren.stores.sqlite import audit, executions, schema
from warren.stores.sqlite.failure import damaged, explaining

if TYPE_CHECKING:
    from collections.abc import Iterator

DATABASE, SECRET = "warren.db", "audit.key"
SECRET_BYTES = 32
CHECKED_BYTES = 32 * MIB
"""A file up to this size is checked as a whole when it is opened, in about 0.1 s; a larger one as it is read."""
LOG_PAGES = 4000
READER_WAIT_S = 0.5
"""Readers wait only for another process that is just opening the file and replays its log."""


class Database:
    """The file, and how it is opened."""

    def __init__(self, data_dir: str, lock_wait_s: float, *, must_exist: bool = False) -> None:
        self.lock_wait_s = lock_wait_s
        self._must_exist = must_exist
        self._file_id: tuple[int, int] | None = None
        self.path = os.path.join(data_dir, DATABASE)
        self._secret_path = os.path.join(data_dir, SECRET)

    def prepare(self, kept_executions: int | None, own_bytes: int | None) -> tuple[bytes, str]:
        """Create or migrate the file; return the secret of the audit chain, and its identity. Raises StoreError."""
        if self._must_exist and not os.path.exists(self.path) and not os.path.exists(self._secret_path):
            raise StoreError(
                f"there is no {DATABASE} in {os.path.dirname(self.path)}: start the service, or name the folder of one "
                "that has run with --data-dir"
            )
        with explaining(self.path):
            os.makedirs(os.path.dirname(self.path), mode=0o700, exist_ok=True)
            # WHY: an existing file is not opened here: closing it would drop the locks of an open store of this
            # process.
            if not os.path.exists(self.path):
                _make_file(self.path, b"")
            with contextlib.closing(self._connect(self.lock_wait_s)) as connection:
                self._check(connection)
                connection.execute("PRAGMA journal_mode = WAL")
                # WHY: a flush once, at the start, so that everything else is on disk before the secret is.
                connection.execute("PRAGMA synchronous = FULL")
                schema.migrate(connection, self.path)
                executions.bound(connection, kept_executions, own_bytes)
                secret = self._load_secret(connection)
                found = connection.execute("SELECT id FROM identity").fetchone()
                if found is None:
                    raise damaged(self.path, "it has no identity")
            self._file_id = self._identify()
        return secret, str(found[0])

    def writer(self) -> sqlite3.Connection:
        """Open the connection of the writer."""
        with explaining(self.path):
            connection = self._connect(self.lock_wait_s)
            connection.execute("PRAGMA synchronous = NORMAL")
            connection.execute("PRAGMA foreign_keys = ON")
            # WHY: environment variables of a sandbox may be secrets, and must not stay in the file after it.
            connection.execute("PRAGMA secure_delete = FAST")
            # WHY: `Checkpoints` does this in another thread, so that writes do not wait; this bound is for a log that
            # continuous writes keep it from emptying.
            connection.execute(f"PRAGMA wal_autocheckpoint = {LOG_PAGES}")
            connection.execute(f"PRAGMA journal_size_limit = {16 * MIB}")
            return connection

    def check_in_place(self) -> None:
        """Raise StoreError when the file was replaced since it was opened: writes would be lost."""
        if self._file_id != self._identify():
            raise StoreError(f"{self.path} was moved, removed or replaced while it was in use: restart the service")

    def _identify(self) -> tuple[int, int] | None:
        with contextlib.suppress(OSError):
            found = os.stat(self.path)
            return found.st_dev, found.st_ino
        return None

    def reader(self) -> sqlite3.Connection:
        """Open a read-only connection."""
        with explaining(self.path):
            connection = self._connect(READER_WAIT_S)
            connection.execute("PRAGMA query_only = ON")
            connection.create_function("holds", 2, _holds, deterministic=True)
            return connection

    def _connect(self, wait_s: float) -> sqlite3.Connection:
        # WHY: mode=rw never creates a file; one that was removed meanwhile must be an error, not an empty result.
        return sqlite3.connect(
            f"file:{urllib.parse.quote(os.path.abspath(self.path))}?mode=rw",
            uri=True,
            timeout=wait_s,
            isolation_level=None,
            check_same_thread=False,
            cached_statements=256,
        )

    def _check(self, connection: sqlite3.Connection) -> None:
        # Before the rest, which is one snapshot of the file: another process may be creating it.
        was_in_use = os.path.exists(self._secret_path)
        with schema.transaction(connection, "DEFERRED"):
            version = schema.read_version(connection)
            (things,) = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
        if version == 0:
            if was_in_use:
                raise StoreError(
                    f"{self.path} is empty, though {self._secret_path} says that it was in use: "
                    f"restore a backup of it, or move {SECRET} away too to start empty"
                )
            if things:
                raise StoreError(f"{self.path} is another program's database: choose another data folder")
        elif os.path.getsize(self.path) <= CHECKED_BYTES:
            (verdict,) = connection.execute("PRAGMA quick_check(1)").fetchone()
            if verdict != "ok":
                raise damaged(self.path, " ".join(verdict.split()))

    def _load_secret(self, connection: sqlite3.Connection) -> bytes:
        while not os.path.exists(self._secret_path):
            self._make_secret(connection)
        with open(self._secret_path, "rb") as file:
            is_private = os.fstat(file.fileno()).st_mode & stat.S_IRWXO == 0
            secret = file.read(SECRET_BYTES + 1)
        if not is_private:
            # WHY not repaired: it may have been read, and then the record is worth less; its operator must know.
            raise StoreError(
                f"every user of this machine can read {self._secret_path}, and so forge the audit record: "
                f"run `chmod 600 {self._secret_path}`"
            )
        if len(secret) != SECRET_BYTES:
            raise StoreError(f"{self._secret_path} is damaged, it is not {SECRET_BYTES} bytes: restore a backup of it")
        return secret

    def _make_secret(self, connection: sqlite3.Connection) -> None:
        """Seal the head of an empty chain, and then store the secret, unless another process has done so."""
        secret = secrets.token_bytes(SECRET_BYTES)
        with schema.transaction(connection, "IMMEDIATE"):
            if os.path.exists(self._secret_path):
                return
            if not audit.begin(connection, secret):
                raise StoreError(
                    f"{self._secret_path} is missing, so the audit record can be neither checked nor continued: "
                    f"restore a backup of it"
                )
        with schema.transaction(connection, "IMMEDIATE"):
            if audit.is_sealed(connection, secret):
                _make_file(self._secret_path, secret)


def _make_file(path: str, content: bytes) -> None:
    """Create a private file atomically, unless another process has created it."""
    draft = f"{path}.{secrets.token_hex(8)}"
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with _closing(descriptor):
            os.write(descriptor, content)
            os.fsync(descriptor)
        # WHY: unlike a rename, a link fails where another process was first; both then use its file.
        with contextlib.suppress(FileExistsError):
            os.link(draft, path)
    finally:
        os.unlink(draft)
    with _closing(os.open(os.path.dirname(path), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)) as folder:
        os.fsync(folder)


@contextlib.contextmanager
def _closing(descriptor: int) -> Iterator[int]:
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _holds(metadata: object, wanted: object) -> bool:
    return load_mapping(wanted).items() <= load_mapping(metadata).items()
