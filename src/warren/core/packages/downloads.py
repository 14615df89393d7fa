"""Downloads: each file is fetched once, and readers stream it while it arrives.

The last byte is held back until the whole file has the hash of the index, so that no reader gets a complete false file.
"""

from __future__ import annotations

import contextlib
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import anyio
from anyio import to_thread

from warren.core.concurrency.fair_queue import FairQueue
from warren.core.packages.fetch import Unfetched
from warren.domain.errors import Overloaded, StoreError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from contextlib import AbstractAsyncContextManager

    from anyio.abc import TaskGroup

    from warren.core.packages.fetch import Fetched
    from warren.core.packages.sources import Digest
    from warren.core.packages.store import Incoming, PackageStore
    from warren.domain.records import Owner

    Fetch = Callable[[], AbstractAsyncContextManager[Fetched]]

MAX_DOWNLOADS = 24
"""At once; owners share the free slots fairly."""
MAX_WAITING = 256
WAIT_S = 60.0
PATIENCE_S = 30.0
"""Seconds that a download continues without a reader."""
_PIECE = 256 << 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """A file of an index."""

    name: str
    url: str
    digest: Digest | None
    """None where the index names no strong hash: the file is then fetched each time, and never cached."""
    weak: tuple[str, str] | None = None
    """A weak hash, such as SHA-1, which the file must match all the same."""


class Mismatched(Unfetched):
    """The content of a file does not match the hash of its index."""

    outcome = "mismatch"


class Download:
    """One file that is being downloaded."""

    def __init__(self, wanted: Wanted) -> None:
        self.wanted = wanted
        self.size: int | None = None
        self.readers = 0
        self.failure: Exception | None = None
        self.incoming: Incoming | None = None
        self.scope = anyio.CancelScope()
        """Ends the download, some time after its last reader left."""
        self.lines: dict[Owner, anyio.CancelScope] = {}
        """The queues for a slot: one for each owner who wants the file, so that none waits for another's quota."""
        self.placed: Owner | None = None
        """The owner whose slot it uses."""
        self.is_left = anyio.Event()
        self._is_begun = False
        self._is_good = False
        self._changed = anyio.Event()

    def come(self) -> None:
        """Add a reader."""
        if not self.readers:
            self.is_left = anyio.Event()
            self.scope.deadline = math.inf
        self.readers += 1

    def leave(self) -> None:
        """Remove a reader."""
        self.readers -= 1
        if not self.readers:
            self.is_left.set()
            # Delayed: installers read a part of a file, then ask for all of it.
            self.scope.deadline = anyio.current_time() + PATIENCE_S

    def leave_lines(self) -> None:
        """Stop waiting for a slot."""
        for line in self.lines.values():
            line.cancel()

    async def wait_placed(self) -> None:
        """Wait for a slot. Raises Overloaded."""
        while self.placed is None:
            if self.failure is not None:
                raise self.failure
            await self._changed.wait()

    def begin(self, size: int | None, incoming: Incoming) -> None:
        """Note that content is arriving."""
        self.size, self.incoming, self._is_begun = size, incoming, True
        self.tell()

    def end(self, failure: Exception | None) -> None:
        """Note that the file is complete and correct, or the failure."""
        self.failure, self._is_good = failure, failure is None
        self.tell()

    def tell(self) -> None:
        """Wake the readers."""
        changed, self._changed = self._changed, anyio.Event()
        changed.set()

    async def wait_begun(self) -> None:
        """Wait until the size is known. Raises the failure of the download."""
        while not self._is_begun and self.failure is None:
            await self._changed.wait()
        if self.failure is not None:
            raise self.failure

    async def read(self, start: int, stop: int | None) -> AsyncIterator[bytes]:
        """Yield the bytes as they arrive. Raises the failure of the download."""
        incoming = self.incoming
        assert incoming is not None
        at = start
        while stop is None or at < stop:
            if self.failure is not None:
                raise self.failure
            ready = incoming.size if self._is_good else incoming.size - 1
            most = ready if stop is None else min(ready, stop)
            if at < most:
                piece = await to_thread.run_sync(incoming.read, at, min(_PIECE, most - at))
                at += len(piece)
                yield piece
            elif self._is_good:
                return
            else:
                await self._changed.wait()


class Downloads:
    """Downloads in progress, by digest. Their tasks run in the group of the owner."""

    def __init__(self, store: PackageStore, file_bytes: int, tasks: TaskGroup) -> None:
        self._store = store
        self._file_bytes = file_bytes
        self._coming: dict[str, Download] = {}
        self._all: set[Download] = set()
        self._places = FairQueue(
            "downloads of packages", slots=MAX_DOWNLOADS, waiting=MAX_WAITING, wait_s=WAIT_S, shared=True
        )
        self._tasks = tasks

    def close(self) -> None:
        """Cancel all downloads."""
        for download in tuple(self._all):
            download.scope.cancel()
            download.is_left.set()

    @contextlib.asynccontextmanager
    async def join(self, wanted: Wanted, owner: Owner, fetch: Fetch) -> AsyncIterator[Download]:
        """Join the download of a file, and start it if there is none, for as long as the body reads it."""
        key = "" if wanted.digest is None else str(wanted.digest)
        download = self._coming.get(key)
        # A download without readers may be cancelled, and not know it yet.
        if download is None or download.scope.cancel_called:
            download = self._start(key, wanted, fetch)
        if download.placed is None and owner not in download.lines:
            download.lines[owner] = anyio.CancelScope()
            self._tasks.start_soon(self._wait, download, owner)
        download.come()
        try:
            yield download
        finally:
            download.leave()

    def _start(self, key: str, wanted: Wanted, fetch: Fetch) -> Download:
        download = Download(wanted)
        self._all.add(download)
        if key:
            self._coming[key] = download
        self._tasks.start_soon(self._run, key, download, fetch)
        return download

    async def _wait(self, download: Download, owner: Owner) -> None:
        """Wait for a slot in the queue of one owner. The first slot of any owner counts."""
        refused: Overloaded | None = None
        with download.lines[owner]:
            try:
                await self._places.enter(owner)
            except Overloaded as error:
                refused = error
            else:
                if download.placed is None and download.failure is None:
                    download.placed = owner
                    download.leave_lines()
                else:
                    self._places.leave(owner)
        del download.lines[owner]
        if refused is not None and not download.lines and download.placed is None:
            download.failure = download.failure or refused
        download.tell()

    async def _run(self, key: str, download: Download, fetch: Fetch) -> None:
        failure: Exception | None = Unfetched("the download was given up")
        try:
            with download.scope:
                await download.wait_placed()
                failure = await self._try(download, fetch)
        except Overloaded as error:
            failure = error
        finally:
            download.leave_lines()
            if download.placed is not None:
                self._places.leave(download.placed)
            if self._coming.get(key) is download:
                del self._coming[key]
            download.end(failure)
            with anyio.CancelScope(shield=True):
                # Its file stays open for the readers.
                if download.readers:
                    await download.is_left.wait()
                if download.incoming is not None:
                    await to_thread.run_sync(download.incoming.discard)
                    download.incoming.close()
            self._all.discard(download)

    async def _try(self, download: Download, fetch: Fetch) -> Exception | None:
        try:
            async with fetch() as answer:
                await self._copy(download, answer)
            await self._check(download)
        except (Unfetched, StoreError) as error:
            return error
        return None

    async def _copy(self, download: Download, answer: Fetched) -> None:
        size = answer.size
        if size is not None and size > self._file_bytes:
            raise self._too_large(download)
        incoming = await to_thread.run_sync(self._store.begin)
        wanted = download.wanted
        incoming.want(wanted.digest.algorithm if wanted.digest else wanted.weak[0] if wanted.weak else "sha256")
        download.begin(size, incoming)
        async for piece in _gather(answer.body):
            if incoming.size + len(piece) > self._file_bytes:
                raise self._too_large(download)
            await to_thread.run_sync(incoming.write, piece)
            download.tell()
        if size is not None and incoming.size != size:
            raise Unfetched(f"{wanted.name} ended early: the index sent {incoming.size} of {size} bytes", is_down=True)

    async def _check(self, download: Download) -> None:
        wanted, incoming = download.wanted, download.incoming
        assert incoming is not None
        if wanted.digest is not None:
            is_good = await to_thread.run_sync(self._store.keep, incoming, wanted.digest)
        else:
            is_good = wanted.weak is None or incoming.hash(wanted.weak[0]) == wanted.weak[1]
        if not is_good:
            raise Mismatched(f"{wanted.name} does not have the hash that its index names: it was not taken")

    def _too_large(self, download: Download) -> Unfetched:
        return Unfetched(f"{download.wanted.name} has more than the {self._file_bytes} bytes of packages.file_bytes")


async def _gather(pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Join small pieces: each write is a trip to a thread."""
    held: list[bytes] = []
    size = 0
    async for piece in pieces:
        held.append(piece)
        size += len(piece)
        if size >= _PIECE:
            yield b"".join(held)
            held, size = [], 0
    if held:
        yield b"".join(held)
