"""Writer of the store: batches, order, isolation of failures, atomicity."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from dataclasses import replace
from typing import TYPE_CHECKING

import anyio
import pytest

from unit.stores.sqlite_file import open_store, tamper
from warren.domain.egress import Egress
from warren.domain.errors import Conflict, StoreError
from warren.domain.records import Owner, ResourceUse, SandboxQuery
from warren.domain.values import new_id
from warren.stores.base import Ceilings
from warren.stores.sqlite import SqliteStore, schema
from warren.testing.store_subject import make_entry, make_execution, make_key, make_result, make_sandbox

if TYPE_CHECKING:
    from pathlib import Path


def test_one_that_fails_does_not_harm_the_others_of_its_transaction(tmp_path: Path) -> None:
    async def main() -> None:
        async with open_store(tmp_path) as store:
            taken = make_sandbox()
            good = [make_sandbox() for _ in range(20)]
            attempts = [store.add(taken), store.add(taken)]
            for sandbox in good:
                attempts += [store.add(sandbox), store.add(sandbox), store.record(make_execution(sandbox))]
                attempts += [
                    store.append(make_entry()),
                    store.add(make_sandbox(), Ceilings(own=ResourceUse(sandboxes=1))),
                ]
            found = await asyncio.gather(*attempts, return_exceptions=True)

            assert sum(isinstance(each, Conflict) for each in found) == 21
            assert (await store.list(SandboxQuery())).total == 21
            assert len(await store.running()) == 20
            assert (await store.verify())[0] == 20

    anyio.run(main)


def test_a_broken_audit_chain_harms_only_those_who_append(tmp_path: Path) -> None:
    async def main() -> None:
        async with open_store(tmp_path) as store:
            await store.append(make_entry())
            await anyio.to_thread.run_sync(tamper, tmp_path, "UPDATE audit_head SET seal = 'x'")
            sandboxes = [make_sandbox() for _ in range(5)]
            attempts = [attempt for each in sandboxes for attempt in (store.add(each), store.append(make_entry()))]
            found = await asyncio.gather(*attempts, return_exceptions=True)

            assert [type(each) for each in found] == [type(None), StoreError] * 5
            assert (await store.list(SandboxQuery())).total == 5

    anyio.run(main)


def test_a_write_that_was_asked_for_is_done_though_its_caller_is_cancelled(tmp_path: Path) -> None:
    async def main() -> None:
        async with open_store(tmp_path) as store:
            sandbox = make_sandbox()
            with anyio.CancelScope() as scope:
                scope.cancel()
                await store.add(sandbox)
            assert await store.get(sandbox.id) == sandbox

            other = make_sandbox()
            task = asyncio.create_task(store.add(other))
            await anyio.lowlevel.checkpoint()
            task.cancel()
            await asyncio.wait([task])
            await store.ping()
            assert await store.get(other.id) == other

    anyio.run(main)


def test_closing_does_what_was_asked_for_before(tmp_path: Path) -> None:
    async def main() -> None:
        store = SqliteStore(tmp_path)
        await store.open()
        async with anyio.create_task_group() as group:
            for _ in range(300):
                group.start_soon(store.append, make_entry())
            await anyio.lowlevel.checkpoint()
            await store.close()
        with pytest.raises(StoreError, match="not open"):
            await store.append(make_entry())
        await store.open()
        assert (await store.verify())[0] == 300
        await store.close()

    anyio.run(main)


def test_only_the_newest_executions_of_a_sandbox_are_kept(tmp_path: Path) -> None:
    async def main() -> None:
        async with open_store(tmp_path, kept_executions=3) as store:
            sandbox, other = make_sandbox(), make_sandbox()
            for each in (sandbox, other):
                await store.add(each)
            long = make_execution(sandbox, started_at=1.0)
            await store.record(long)
            await store.record(make_execution(other))
            made = [make_execution(sandbox, started_at=10.0 + number) for number in range(6)]
            for execution in made:
                await store.record(execution)
                await store.record(replace(execution, finished_at=execution.started_at + 1, result=make_result()))
            kept = [item.id for item in (await store.executions(sandbox.id)).items]

            assert kept == [made[5].id, made[4].id, long.id]
            await store.record(replace(long, finished_at=99.0, result=make_result()))
            await store.record(make_execution(sandbox, started_at=100.0))
            kept = [item.id for item in (await store.executions(sandbox.id)).items]
            assert kept[1:] == [made[5].id, long.id], "the one that ended last stays, though it began first"
            counted = await store.get(sandbox.id)
            assert counted is not None
            assert counted.executions == 8
            assert (await store.executions(other.id)).total == 1

    anyio.run(main)


def test_only_so_many_bytes_of_an_owners_executions_are_kept(tmp_path: Path) -> None:
    """However many sandboxes they are spread over, and however small those are that have to go for a large one."""

    async def main() -> None:
        async with open_store(tmp_path, own_bytes=100_000) as store:
            sandboxes = [make_sandbox() for _ in range(3)]
            other = make_sandbox(owner=Owner("some", "body"))
            for each in (*sandboxes, other):
                await store.add(each)
            await store.record(make_execution(other, result=make_result(), finished_at=0.5))
            long = make_execution(sandboxes[0], started_at=1.0)
            await store.record(long)
            for number in range(120):
                execution = make_execution(sandboxes[number % 3], started_at=10.0 + number)
                await store.record(execution)
                await store.record(replace(execution, finished_at=10.5 + number, result=make_result()))
            many = sum([(await store.executions(each.id)).total for each in sandboxes])
            assert 50 < many < 110
            assert await store.recorded(long.owner) <= 100_000

            large = replace(execution, id=new_id("exe"), finished_at=999.0, result=make_result(stdout=bytes(90_000)))
            await store.record(large)
            kept = {item.id for each in sandboxes for item in (await store.executions(each.id)).items}
            assert {large.id, long.id} < kept, "what came last, and what runs"
            assert execution.id in kept, "of the others, those that ended last"
            assert await store.recorded(long.owner) <= 100_000
            await store.record(replace(large, id=new_id("exe"), result=make_result(stdout=bytes(200_000))))
            assert (await store.executions(sandboxes[2].id)).total == 1, "the last is kept, be it too large alone"
            assert (await store.executions(other.id)).total == 1

    anyio.run(main)


def test_running_executions_are_never_forgotten(tmp_path: Path) -> None:
    async def main() -> None:
        async with open_store(tmp_path, kept_executions=2) as store:
            sandbox = make_sandbox()
            await store.add(sandbox)
            running = [make_execution(sandbox) for _ in range(5)]
            for execution in running:
                await store.record(execution)
            assert len(await store.running(sandbox.id)) == 5

            for number, execution in enumerate(running):
                await store.record(replace(execution, finished_at=float(number), result=make_result()))
            assert (await store.executions(sandbox.id)).total == 2

    anyio.run(main)


def test_another_process_does_not_change_what_is_kept_by_opening_the_file(tmp_path: Path) -> None:
    async def main() -> None:
        async with open_store(tmp_path, kept_executions=1) as store, open_store(tmp_path):
            sandbox = make_sandbox()
            await store.add(sandbox)
            for _ in range(3):
                await store.record(make_execution(sandbox, result=make_result(), finished_at=1.0))
            assert (await store.executions(sandbox.id)).total == 1

    anyio.run(main)


def test_a_store_is_used_from_two_event_loops_in_turn(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path)
    key = make_key()

    async def first() -> None:
        await store.open()
        await store.add_key(key)
        await store.close()

    async def second() -> None:
        await store.open()
        assert await store.keys() == (key,)
        await store.close()

    anyio.run(first)
    anyio.run(second, backend_options={"use_uvloop": True})


def test_what_an_earlier_version_recorded_is_counted_too(tmp_path: Path) -> None:
    sandbox = make_sandbox()
    with contextlib.closing(sqlite3.connect(tmp_path / "warren.db", isolation_level=None)) as connection:
        connection.execute("CREATE TABLE schema_version (version INTEGER PRIMARY KEY, made_at REAL)")
        for statement in schema.read_statements(schema.list_migrations()[0]):
            connection.execute(statement)
        connection.execute("INSERT INTO schema_version VALUES (1, 0)")
        connection.execute(
            "INSERT INTO sandboxes (id, tenant, subject, status, active, memory_bytes, disk_bytes, engine, image, "
            "image_digest, limits, storage, env, metadata, created_at, active_at, changed_at) "
            "VALUES (?, ?, ?, 'running', 1, 1, 1, 'bare', 'data', '', '{}', 'persistent', '{}', '{}', 1, 1, 1)",
            (sandbox.id, *sandbox.owner),
        )
        for number, result in enumerate(("{}", None)):
            connection.execute(
                "INSERT INTO executions (id, sandbox_id, tenant, subject, kind, code, background, request_id, "
                "started_at, finished_at, result, stdout, stderr) "
                "VALUES (?, ?, ?, ?, 'cell', 'x', 0, '', 1, ?, ?, ?, ?)",
                (f"exe_{number}", sandbox.id, *sandbox.owner, result and 2.0, result, result and bytes(9_000), b""),
            )

    async def main() -> None:
        async with open_store(tmp_path, own_bytes=9_600) as store:
            kept = await store.get(sandbox.id)
            assert kept is not None
            assert kept.egress == Egress(), "a sandbox older than egress has none"
            assert 9_500 < await store.recorded(sandbox.owner) < 9_600
            await store.record(make_execution(sandbox, result=make_result(), finished_at=3.0))
            assert await store.execution("exe_0") is None, "it was the oldest that had ended"
            assert await store.recorded(sandbox.owner) < 2_000

    anyio.run(main)
