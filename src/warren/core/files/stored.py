"""Stored files: contents that the service keeps for callers by id, apart from any sandbox, until they expire."""

from __future__ import annotations

import contextlib
import logging
import time
import uuid
from functools import partial
from typing import TYPE_CHECKING, Any

import anyio

from warren.core.policy.policy import check_may
from warren.domain.errors import Error, NotFound, QuotaExceeded, StoreError
from warren.domain.records import STORED_FILE_BYTES, Scope, StoredFile

if TYPE_CHECKING:
    from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable

    from warren.blobs.filesystem import Blob, Blobs, Reading
    from warren.core.audit.log import Audit
    from warren.core.policy.policy import Policy
    from warren.domain.records import Caller, Owner
    from warren.stores.base import Store

LOOK_S = 5.0
"""Between two removals of expired files; until then they are only hidden."""
SWEEP_S = 3600.0
_AT_ONCE = 100
_NAME_BYTES = 1024

_log = logging.getLogger(__name__)


class StoredFiles:
    """Stored files of all owners; a file exists for its owner only.

    Content is on disk before its row and removed after it, so after `kill -9` no row is without content; content
    without a row is swept.
    """

    def __init__(self, store: Store, blobs: Blobs, audit: Audit, policy: Policy) -> None:
        self._store = store
        self._blobs = blobs
        self._audit = audit
        self._policy = policy

    async def add(
        self,
        caller: Caller,
        name: str,
        source: bytes | AsyncIterable[bytes],
        *,
        ttl_s: float,
        max_bytes: int | None = None,
        unless: str | None = None,
        file_id: str = "",
    ) -> StoredFile | None:
        """Store content under a new id, or the given one; None, and nothing stored, where its SHA-256 is `unless`.

        Raises TooLarge above `max_bytes`, QuotaExceeded, and StoreError.
        """
        check_may(caller, Scope.RUN)
        self._audit.check_writable()
        await self.check_room(caller.principal.owner, len(source) if isinstance(source, bytes) else 0)
        with contextlib.suppress(_Unwanted):
            async with self._audited(caller, "stored_file.create", name=_shorten(name)) as noted:
                async with self._blobs.write(source, max_bytes=max_bytes) as blob:
                    if blob.sha256 == unless:
                        raise _Unwanted
                    file = _build(caller.principal.owner, name, blob, ttl_s, file_id)
                    policy, store = self._policy, self._store
                    row = store.add_file(file, own_bytes=policy.own_file_bytes, all_bytes=policy.file_bytes)
                    await write_row(row, partial(store.remove_file, file.id))
                noted |= {"file_id": file.id, "bytes": file.size}
            return file
        return None

    async def check_room(self, owner: Owner, size: int) -> None:
        """Raise QuotaExceeded where content of this size would be refused, before it is sent."""
        for most, whose in ((self._policy.own_file_bytes, owner), (self._policy.file_bytes, None)):
            if most and await self._store.file_bytes(whose) + size + STORED_FILE_BYTES > most:
                raise QuotaExceeded(
                    f"there is no room for more files: {'all owners together' if whose is None else 'one principal'} "
                    f"may keep {most} bytes; delete some, or wait until they expire",
                    retry_after_s=60.0,
                )

    async def get(self, caller: Caller, file_id: str) -> StoredFile:
        """Return a file. Raises NotFound, also for another owner's and for an expired one."""
        check_may(caller, Scope.READ)
        file = await self._store.file(file_id)
        if file is None or file.owner != caller.principal.owner or file.expires_at <= time.time():
            raise NotFound(f"there is no file {file_id[:64]!r}")
        return file

    async def list(self, caller: Caller) -> tuple[StoredFile, ...]:
        """Return the caller's own files, oldest first."""
        check_may(caller, Scope.READ)
        now = time.time()
        return tuple(file for file in await self._store.files(caller.principal.owner) if file.expires_at > now)

    @contextlib.asynccontextmanager
    async def read(self, caller: Caller, file: StoredFile, *, sandbox_id: str = "") -> AsyncIterator[Reading]:
        """Open the content of a file that `get` or `list` returned, perhaps for a sandbox. Raises NotFound."""
        self._audit.check_room()
        details = {"name": file.name, "file_id": file.id, **({"sandbox_id": sandbox_id} if sandbox_id else {})}
        async with (
            # Content for a sandbox serves an execution, whose own audit entry is waited for.
            self._audited(caller, "stored_file.read", is_settled=not sandbox_id, **details),
            self._blobs.read(file.blob) as content,
        ):
            yield content

    async def delete(self, caller: Caller, file_id: str) -> None:
        """Delete a file. Raises NotFound, also for another owner's."""
        check_may(caller, Scope.RUN)
        self._audit.check_writable()
        file = await self.get(caller, file_id)
        async with self._audited(caller, "stored_file.delete", name=file.name, file_id=file.id):
            with anyio.CancelScope(shield=True):
                if not await self._store.remove_file(file.id):
                    raise NotFound(f"there is no file {file_id[:64]!r}")
                await self._blobs.remove(file.blob)

    async def discard(self, file_id: str) -> None:
        """Remove a file of any owner, if it exists. For files of the service itself whose ids were never handed out."""
        file = await self._store.file(file_id)
        if file is not None:
            with anyio.CancelScope(shield=True):
                if await self._store.remove_file(file.id):
                    await self._blobs.remove(file.blob)
            self._audit.note(None, "stored_file.delete", name=file.name, file_id=file.id)

    async def run(self) -> None:
        """Remove expired files until the service stops."""
        swept_at = -SWEEP_S
        while True:
            try:
                if time.monotonic() - swept_at >= SWEEP_S:
                    await self.sweep()
                    swept_at = time.monotonic()
                await self.expire()
            except StoreError as error:
                _log.warning("stored_files.remove_failed", extra={"reason": str(error)})
            await anyio.sleep(LOOK_S)

    async def expire(self) -> int:
        """Remove expired files; return their number."""
        count = 0
        while gone := await self._store.remove_files(expired_at=time.time(), limit=_AT_ONCE):
            with anyio.CancelScope(shield=True):
                await self._blobs.remove(*(file.blob for file in gone))
            count += len(gone)
            self._audit.note(None, "stored_file.expire", files=len(gone), bytes=sum(file.size for file in gone))
        return count

    async def sweep(self) -> int:
        """Remove content without a row, and rows without complete content; return their number.

        A crash leaves the first, and a disk that loses what was flushed to it the second.
        """
        count = await self._blobs.sweep(self._list_blobs)
        # In this order: content that is added after the rows were read is not among them.
        files, sizes = await self._store.files(None), await self._blobs.sizes()
        for file in files:
            if sizes.get(file.blob) != file.size and await self._store.remove_file(file.id):
                await self._blobs.remove(file.blob)
                count += 1
        if count:
            _log.info("stored_files.swept", extra={"files": count})
        return count

    async def _list_blobs(self) -> frozenset[str]:
        return frozenset(file.blob for file in await self._store.files(None))

    @contextlib.asynccontextmanager
    async def _audited(
        self, caller: Caller, action: str, *, is_settled: bool = True, **details: Any
    ) -> AsyncIterator[dict[str, Any]]:
        """Audit the outcome of an operation before the response; the body may add details."""
        outcome = "abandoned"
        try:
            yield details
            outcome = "ok"
        except _Unwanted:
            outcome = ""
            raise
        except Error as error:
            outcome = error.code
            raise
        finally:
            if outcome:
                self._audit.note(caller, action, outcome=outcome, **details)
            if is_settled:
                # WHY: a caller that is cancelled here, after the work, would not learn what was done.
                with anyio.CancelScope(shield=True):
                    await self._audit.settle()


async def write_row(write: Awaitable[None], undo: Callable[[], Awaitable[object]]) -> None:
    """Write the row of content that is on disk, however the caller is cancelled: it is written, or removed."""
    try:
        with anyio.CancelScope(shield=True):
            await write
    except Error:
        raise
    except BaseException:
        # WHY: a task's own `cancel()` passes every shield, and the state of the store is then unknown.
        with anyio.CancelScope(shield=True):
            await undo()
        raise


class _Unwanted(Exception):
    """The caller has this content already."""


def _build(owner: Owner, name: str, blob: Blob, ttl_s: float, file_id: str) -> StoredFile:
    now = time.time()
    return StoredFile(
        id=file_id or str(uuid.uuid4()),
        owner=owner,
        name=_shorten(name),
        size=blob.size,
        sha256=blob.sha256,
        blob=blob.name,
        created_at=now,
        expires_at=now + ttl_s,
    )


def _shorten(name: str) -> str:
    return name.encode("utf-8", "replace")[:_NAME_BYTES].decode("utf-8", "ignore")
