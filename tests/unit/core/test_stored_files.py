"""Stored files: by id, private to their owner, within a quota and a lifetime; complete after a crash, or gone."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from unit.core.estate import ADMIN, ANN, BOB, READER
from warren.blobs.filesystem import Blobs
from warren.core.audit.log import Audit
from warren.core.files.stored import StoredFiles
from warren.core.policy.policy import Policy
from warren.domain.errors import Forbidden, NotFound, QuotaExceeded, StoreError, TooLarge
from warren.domain.records import STORED_FILE_BYTES, AuditQuery, StoredFile
from warren.stores.sqlite.store import SqliteStore

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from warren.domain.records import Caller


class Shelf:
    def __init__(self, folder: Path, **policy: Any) -> None:
        self.folder = folder / "blobs"
        self.store = SqliteStore(folder)
        self.audit = Audit(self.store, Policy())
        self.files = StoredFiles(self.store, Blobs(str(self.folder)), self.audit, Policy(**policy))

    async def add(
        self, content: bytes = b"one", caller: Caller = ANN, name: str = "a.txt", ttl_s: float = 60
    ) -> StoredFile:
        file = await self.files.add(caller, name, content, ttl_s=ttl_s)
        assert file is not None
        return file

    async def read(self, file: StoredFile, caller: Caller = ANN) -> bytes:
        async with self.files.read(caller, await self.files.get(caller, file.id)) as content:
            return b"".join([piece async for piece in content])

    def on_disk(self) -> set[str]:
        return set(os.listdir(self.folder)) if self.folder.exists() else set()


@pytest.fixture
def tell(tmp_path: Path) -> Callable[..., None]:
    def told(story: Callable[[Shelf], Awaitable[None]], **policy: Any) -> None:
        async def go() -> None:
            shelf = Shelf(tmp_path, **policy)
            await shelf.store.open()
            try:
                await story(shelf)
                # Whatever was done: no row without a content, no content without a row.
                assert {file.blob for file in await shelf.store.files(None)} == shelf.on_disk()
            finally:
                await shelf.store.close()

        anyio.run(go)

    return told


def test_a_file_is_kept_listed_read_and_deleted(tell: Callable[..., None]) -> None:
    async def story(shelf: Shelf) -> None:
        one, two = await shelf.add(b"one"), await shelf.add(b"", name="b\ud800\n/../x")
        assert (one.size, one.sha256) == (3, hashlib.sha256(b"one").hexdigest())
        assert await shelf.files.list(ANN) == (one, two)
        assert [await shelf.read(one), await shelf.read(two)] == [b"one", b""]
        await shelf.files.delete(ANN, one.id)
        assert await shelf.files.list(ANN) == (two,)
        with pytest.raises(NotFound):
            await shelf.read(one)
        with pytest.raises(NotFound):
            await shelf.files.delete(ANN, one.id)
        await shelf.audit.flush()
        page = await shelf.store.audit(AuditQuery())
        assert [row.entry.action.partition(".")[2] for row in reversed(page.items)] == [
            "create",
            "create",
            "read",
            "read",
            "delete",
        ]

    tell(story)


def test_a_file_is_its_owners_alone(tell: Callable[..., None]) -> None:
    async def story(shelf: Shelf) -> None:
        file = await shelf.add()
        for caller in (BOB, ADMIN):
            assert await shelf.files.list(caller) == ()
            with pytest.raises(NotFound):
                await shelf.files.get(caller, file.id)
            with pytest.raises(NotFound):
                await shelf.files.delete(caller, file.id)
        assert await shelf.files.get(READER, file.id) == file
        with pytest.raises(Forbidden):
            await shelf.files.delete(READER, file.id)
        with pytest.raises(Forbidden):
            await shelf.add(caller=READER)

    tell(story)


@pytest.mark.parametrize("file_id", ["/etc/hostname", "../warren.db", "", "\0", "\ud800", "x" * 100_000])
def test_an_id_is_never_a_path(tell: Callable[..., None], file_id: str) -> None:
    async def story(shelf: Shelf) -> None:
        with pytest.raises(NotFound):
            await shelf.files.get(ANN, file_id)

    tell(story)


def test_what_is_too_large_or_known_already_is_not_kept(tell: Callable[..., None]) -> None:
    async def story(shelf: Shelf) -> None:
        with pytest.raises(TooLarge):
            await shelf.files.add(ANN, "a", b"four", ttl_s=60, max_bytes=3)
        known = hashlib.sha256(b"four").hexdigest()
        assert await shelf.files.add(ANN, "a", b"four", ttl_s=60, unless=known) is None
        assert await shelf.files.list(ANN) == ()

    tell(story)


def test_each_owner_and_all_together_stay_within_their_quotas(tell: Callable[..., None]) -> None:
    async def story(shelf: Shelf) -> None:
        first = await shelf.add(b"x" * 100)
        with pytest.raises(QuotaExceeded):
            await shelf.add(b"x" * 101)
        await shelf.add(b"x" * 100)
        with pytest.raises(QuotaExceeded):
            await shelf.add(b"")
        await shelf.add(b"x", BOB)
        with pytest.raises(QuotaExceeded, match="all owners"):
            await shelf.add(b"x", ADMIN)
        await shelf.files.delete(ANN, first.id)
        await shelf.add(b"x", ADMIN)

    weight = STORED_FILE_BYTES + 100
    tell(story, own_file_bytes=2 * weight, file_bytes=3 * weight)


def test_a_file_whose_time_is_over_is_gone_at_once_and_soon_from_the_disk(tell: Callable[..., None]) -> None:
    async def story(shelf: Shelf) -> None:
        old, new = await shelf.add(ttl_s=0), await shelf.add()
        assert await shelf.files.list(ANN) == (new,)
        with pytest.raises(NotFound):
            await shelf.files.get(ANN, old.id)
        assert len(shelf.on_disk()) == 2
        assert await shelf.files.expire() == 1
        assert shelf.on_disk() == {new.blob}

    tell(story)


def test_who_leaves_while_a_file_is_written_leaves_nothing(tell: Callable[..., None]) -> None:
    async def endless(scope: anyio.CancelScope) -> Any:
        yield b"begun"
        scope.cancel()
        await anyio.sleep_forever()

    async def story(shelf: Shelf) -> None:
        with anyio.CancelScope() as scope:
            await shelf.files.add(ANN, "a", endless(scope), ttl_s=60)
        assert shelf.on_disk() == set()

    tell(story)


def test_a_file_whose_content_a_power_failure_took_is_forgotten(tell: Callable[..., None]) -> None:
    async def story(shelf: Shelf) -> None:
        lost, cut, whole = [await shelf.add() for _ in range(3)]
        (shelf.folder / lost.blob).unlink()
        (shelf.folder / cut.blob).write_bytes(b"")
        with pytest.raises(NotFound):
            await shelf.read(lost)
        assert await shelf.files.sweep() == 2
        assert await shelf.files.list(ANN) == (whole,)

    tell(story)


def test_a_store_that_fails_keeps_no_content(tmp_path: Path) -> None:
    async def story() -> None:
        shelf = Shelf(tmp_path)
        await shelf.store.open()
        await shelf.store.close()
        with pytest.raises(StoreError):
            await shelf.add()
        assert shelf.on_disk() == set()

    anyio.run(story)


_WRITER = """
import sys, anyio
from pathlib import Path
from unit.core.test_stored_files import Shelf

async def main():
    shelf = Shelf(Path(sys.argv[1]))
    await shelf.store.open()
    async with anyio.create_task_group() as tasks:
        for _ in range(4):
            tasks.start_soon(work, shelf)

async def work(shelf):
    while True:
        file = await shelf.add(b"x" * 50_000)
        print(file.id, flush=True)
        if file.id < "8":
            await shelf.files.delete(__import__("unit.core.estate").core.estate.ANN, file.id)

anyio.run(main)
"""


def test_after_a_kill_in_the_middle_every_row_has_its_content_and_no_content_is_without_a_row(tmp_path: Path) -> None:
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    for round_ in range(3):
        with subprocess.Popen(
            [sys.executable, "-c", _WRITER, str(tmp_path)], stdout=subprocess.PIPE, env=env
        ) as writer:
            assert writer.stdout is not None
            for _ in range(10 + 7 * round_):
                assert writer.stdout.readline()
            writer.kill()

    async def story() -> None:
        shelf = Shelf(tmp_path)
        await shelf.store.open()
        try:
            await shelf.files.sweep()
            files = await shelf.files.list(ANN)
            assert files
            assert {file.blob for file in files} == shelf.on_disk()
            for file in files:
                assert await shelf.read(file) == b"x" * 50_000
        finally:
            await shelf.store.close()

    anyio.run(story)
