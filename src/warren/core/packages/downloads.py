"""Downloads: each file is fetched once, however many ask for it, and read while it comes.

The last byte of a file is held back until the whole has the hash that the index named: nobody gets all of a false one.
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
"""At once; what is free of them is shared among owners."""
MAX_WAITING = 256
WAIT_S = 60.0
PATIENCE_S = 30.0
"""How long a download goes on that nobody reads."""
_PIECE = 256 << 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """A file of an index."""

    name: str
    url: str
    digest: Digest | None
    """None where the index names none that counts: it is fetched each time, and kept for nobody."""
    weak: tuple[str, str] | None = None
    """A hash that anybody could forge, but which it has to have all the same."""


class Mismatched(Unfetched):
    """A file is not what its index says that it is."""

    outcome = "mismatch"


class Download:
    """One file on its way."""

    def __init__(self, wanted: Wanted) -> None:
        self.wanted = wanted
        self.size: int | None = None
        self.readers = 0
        self.failure: Exception | None = None
        self.incoming: Incoming | None = None
        self.scope = anyio.CancelScope()
        """What ends it: some time after nobody reads it any more."""
        self.lines: dict[Owner, anyio.CancelScope] = {}
        """In which it waits for a place: in that of each owner who wants it, so that none waits for another's."""
        self.placed: Owner | None = None
        """Whose place it has."""
        self.is_left = anyio.Event()
        self._is_begun = False
        self._is_good = False
        self._changed = anyio.Event()

    def come(self) -> None:
        """Have one more who reads it."""
        if not self.readers:
            self.is_left = anyio.Event()
            self.scope.deadline = math.inf
        self.readers += 1

    def leave(self) -> None:
        """Have one less."""
        self.readers -= 1
        if not self.readers:
            self.is_left.set()
            # Not at once: installers look at a part of a file, and then ask for all of it.
            self.scope.deadline = anyio.current_time() + PATIENCE_S

    def leave_lines(self) -> None:
        """Wait for a place no longer."""
        for line in self.lines.values():
            line.cancel()

    async def wait_placed(self) -> None:
        """Wait until it has a place. Raises Overloaded when it gets none."""
        while self.placed is None:
            if self.failure is not None:
                raise self.failure
            await self._changed.wait()

    def begin(self, size: int | None, incoming: Incoming) -> None:
        """Note that it has begun to come."""
        self.size, self.incoming, self._is_begun = size, incoming, True
        self.tell()

    def end(self, failure: Exception | None) -> None:
        """Note that all of it is here and as it should be, or why not."""
        self.failure, self._is_good = failure, failure is None
        self.tell()

    def tell(self) -> None:
        """Wake whoever waits for more."""
        changed, self._changed = self._changed, anyio.Event()
        changed.set()

    async def wait_begun(self) -> None:
        """Wait until its size is known. Raises why it could not be had."""
        while not self._is_begun and self.failure is None:
            await self._changed.wait()
        if self.failure is not None:
            raise self.failure

    async def read(self, start: int, stop: int | None) -> AsyncIterator[bytes]:
        """Yield the bytes as they come. Raises why it could not be had."""
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
    """What is on its way, by digest. Its tasks are in a group that the owner opens."""

    def __init__(self, store: PackageStore, file_bytes: int, tasks: TaskGroup) -> None:
        self._store = store
        self._file_bytes = file_bytes
        self._coming: dict[str, Download] = {}
        self._all: set[Download] = set()
        self._places = FairQueue(
            "downloads of packages",
            slots=MAX_DOWNLOADS,
            waiting=MAX_WAITING,
            wait_s=WAIT_S,
            on_refused=_nothing,
            shared=True,
        )
        self._tasks = tasks

    def close(self) -> None:
        """Give up what is on its way."""
        for download in tuple(self._all):
            download.scope.cancel()
            download.is_left.set()

    @contextlib.asynccontextmanager
    async def join(self, wanted: Wanted, owner: Owner, fetch: Fetch) -> AsyncIterator[Download]:
        """Have the download of a file, begun if it is not, for as long as the body reads it."""
        key = "" if wanted.digest is None else str(wanted.digest)
        download = self._coming.get(key)
        # One that nobody read for long is given up, and may not know yet.
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
        """Wait for a place in the line of one who wants it. The first place that any of them gets is its place."""
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
            self._forget(key, download)
            download.end(failure)
            with anyio.CancelScope(shield=True):
                # Its file is open for those who read it.
                if download.readers:
                    await download.is_left.wait()
                if download.incoming is not None:
                    await to_thread.run_sync(download.incoming.discard)
                    download.incoming.close()
            self._all.discard(download)

    def _forget(self, key: str, download: Download) -> None:
        if self._coming.get(key) is download:
            del self._coming[key]

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


def _nothing(_why: str) -> None:
    """Do nothing: the answer says it."""


async def _gather(pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Make larger pieces of small ones: each is a trip to a thread."""
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
