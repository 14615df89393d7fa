"""WAL checkpoints, in a thread beside the writer, about once a second while the log has content.

So a write never waits for the disk, and a power failure loses about the last second.
"""

from __future__ import annotations

import contextlib
import sqlite3
import threading

EVERY_S = 1.0


class Checkpoints:
    """A thread with its own connection."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._wanted = threading.Event()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="warren-store-log", daemon=True)
        self._thread.start()

    def want(self) -> None:
        """Announce that something was written."""
        if not self._wanted.is_set():
            self._wanted.set()

    def close(self) -> None:
        """End the thread, and close its connection."""
        self._closing.set()
        self._wanted.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._closing.is_set():
            self._wanted.wait()
            if self._closing.wait(EVERY_S):
                break
            self._wanted.clear()
            # WHY: a full or missing disk is reported where a caller waits for a response; the log keeps what was
            # written.
            with contextlib.suppress(sqlite3.Error):
                self._connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
        with contextlib.suppress(sqlite3.Error):
            self._connection.close()
