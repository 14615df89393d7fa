"""A store whose process is killed, and several processes with one file."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sqlite3
import subprocess
import sys
import threading
from typing import IO, TYPE_CHECKING

import anyio
import pytest

from unit.stores.sqlite_file import open_store
from warren.domain.errors import Conflict, StoreError
from warren.domain.records import AuditQuery
from warren.stores.sqlite import SqliteStore
from warren.stores.sqlite.database import Database
from warren.testing.store_subject import make_entry, make_key, make_sandbox

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PROGRAM = os.path.join(os.path.dirname(os.path.abspath(__file__)), "acknowledging.py")


@contextlib.contextmanager
def writing(folder: Path, most: int = 0) -> Iterator[tuple[subprocess.Popen[bytes], IO[bytes]]]:
    with subprocess.Popen([sys.executable, PROGRAM, str(folder), str(most)], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        try:
            yield process, process.stdout
        finally:
            process.kill()


async def check_kept(folder: Path, acknowledged: set[str]) -> None:
    async with open_store(folder) as store:
        seq, _ = await store.verify()
        rows = {row.entry.execution_id async for row in store.chain()}
        assert len(rows) == seq
        assert acknowledged <= rows
        assert {each for each in acknowledged if await store.execution(each) is None} == set()


def test_nothing_acknowledged_is_missing_after_a_kill(tmp_path: Path) -> None:
    acknowledged: set[str] = set()
    for lines in (1, 40, 7, 150, 300, 3):
        with writing(tmp_path) as (process, output):
            acknowledged.update(output.readline().decode().strip() for _ in range(lines))
            process.kill()
            # WHY: what was said before it died, and a line that was cut off is one that was not said.
            acknowledged.update(line.decode().strip() for line in output.read().splitlines(keepends=True))
        anyio.run(check_kept, tmp_path, acknowledged)

    assert len(acknowledged) > 500


def test_a_kill_while_the_file_is_made_leaves_one_that_opens(tmp_path: Path) -> None:
    for number in range(6):
        folder = tmp_path / str(number)
        with writing(folder) as (process, _):
            for _ in range(20_000):
                if folder.exists() and len(os.listdir(folder)) > number // 2:
                    break
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(0.0005)
            process.kill()
        anyio.run(check_kept, folder, set())


def test_processes_write_one_chain_together(tmp_path: Path) -> None:
    with writing(tmp_path, 400) as (_, one), writing(tmp_path, 400) as (_, two):
        acknowledged = {line.decode().strip() for output in (one, two) for line in output}

    assert len(acknowledged) >= 800
    anyio.run(check_kept, tmp_path, acknowledged)


def test_a_key_made_by_another_process_is_seen_at_once(tmp_path: Path) -> None:
    async def main() -> None:
        async with open_store(tmp_path) as service, open_store(tmp_path) as command:
            key = make_key()
            assert await service.key(key.hash) is None
            await command.add_key(key)
            assert await service.key(key.hash) == key
            with pytest.raises(Conflict):
                await service.add_key(make_key(name=key.name))

    anyio.run(main)


def test_a_file_made_by_many_at_once_is_one_file(tmp_path: Path) -> None:
    async def main() -> None:
        stores = [SqliteStore(tmp_path) for _ in range(12)]
        async with anyio.create_task_group() as group:
            for store in stores:
                group.start_soon(store.open)
        for store in stores:
            await store.append(make_entry())
        assert (await stores[0].verify())[0] == 12
        for store in stores:
            await store.close()

    anyio.run(main)
    assert sorted(os.listdir(tmp_path)) == ["audit.key", "warren.db"]


class Meanwhile(Database):
    """Opens a file while another process makes it: between its second look at what is in there and its first."""

    def _connect(self, wait_s: float) -> sqlite3.Connection:
        connection = super()._connect(wait_s)
        other = threading.Thread(target=Database(os.path.dirname(self.path), wait_s).prepare, args=(None, None))

        def look(statement: str) -> None:
            if "count(*) FROM sqlite_schema" in statement and other.ident is None:
                other.start()
                # Where it has to wait for us, it does not end: it must then have nothing to do with what we see.
                other.join(0.5)

        connection.set_trace_callback(look)
        return connection


def test_a_file_that_another_process_is_just_making_is_not_taken_for_a_strange_one(tmp_path: Path) -> None:
    secret = Meanwhile(str(tmp_path), 10.0).prepare(None, None)
    assert Database(str(tmp_path), 10.0).prepare(None, None) == secret


def test_a_writer_waits_for_another_process_but_not_for_ever(tmp_path: Path) -> None:
    async def main() -> None:
        store = SqliteStore(tmp_path, lock_wait_s=1.0)
        await store.open()
        sandbox = make_sandbox()
        await store.add(sandbox)
        with contextlib.closing(sqlite3.connect(tmp_path / "warren.db", isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            # One after the other they would wait for half a minute.
            with anyio.fail_after(15):
                found = await asyncio.gather(*(store.append(make_entry()) for _ in range(30)), return_exceptions=True)
            assert {type(each) for each in found} == {StoreError}
            assert "locked by another process" in str(found[0])
            assert await store.get(sandbox.id) == sandbox
            assert (await store.audit(AuditQuery())).total == 0
            other.execute("ROLLBACK")
            await store.append(make_entry())
        assert (await store.verify())[0] == 1
        await store.close()

    anyio.run(main)
