"""Writing executions down when the store does not take them: nothing hangs, nothing is answered that is not kept."""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio
import pytest

from unit.core.estate import ANN, wait_until
from unit.core.workshop import SHELL, Workshop, command
from warren.core.executions.request import build_fingerprint
from warren.core.executions.writer import ExecutionWriter
from warren.core.policy.policy import Policy
from warren.domain.errors import StoreError
from warren.domain.records import AuditQuery
from warren.stores.sqlite.store import SqliteStore

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from warren.domain.records import Execution, Page


class FullStore(SqliteStore):
    """A store over the same file whose disk is full at times."""

    def __init__(self, data_dir: str) -> None:
        super().__init__(data_dir)
        self.refuses_starts = False
        self.refuses_finishes = False
        self.after_listing: Callable[[], Awaitable[None]] | None = None
        self.after_looking: Callable[[], Awaitable[None]] | None = None
        self.after_running: Callable[[], Awaitable[None]] | None = None

    async def record(self, execution: Execution) -> None:
        refuses = self.refuses_starts if execution.result is None else self.refuses_finishes
        if refuses:
            raise StoreError("the disk is full")
        await super().record(execution)

    async def execution(self, execution_id: str) -> Execution | None:
        found = await super().execution(execution_id)
        meanwhile, self.after_looking = self.after_looking, None
        if meanwhile is not None:
            await meanwhile()
        return found

    async def running(self, sandbox_id: str | None = None) -> tuple[Execution, ...]:
        found = await super().running(sandbox_id)
        if self.after_running is not None:
            await self.after_running()
        return found

    async def executions(self, sandbox_id: str, *, offset: int = 0, limit: int = 50) -> Page[Execution]:
        page = await super().executions(sandbox_id, offset=offset, limit=limit)
        if self.after_listing is not None:
            await self.after_listing()
        return page


def tell(tmp_path: Path, images_dir: str, story: Callable[[Workshop, FullStore], Awaitable[None]]) -> None:
    async def told() -> None:
        store = FullStore(str(tmp_path))
        shop = Workshop(str(tmp_path), images_dir, Policy(image="python"), store=store)
        await store.open()
        try:
            with anyio.fail_after(40):
                async with shop.working():
                    await story(shop, store)
        finally:
            with anyio.CancelScope(shield=True):
                await shop.clean()
                await store.close()

    anyio.run(told)


def test_a_start_that_is_not_written_is_made_good_by_its_finish(tmp_path: Path, images_dir: str) -> None:
    async def story(shop: Workshop, store: FullStore) -> None:
        sandbox = await shop.create()
        store.refuses_starts = True
        execution = await shop.executions.run(ANN, sandbox.id, command("echo x"))
        assert (await shop.finished(execution.id)).result == execution.result
        with pytest.raises(StoreError, match="disk is full"):
            await shop.executions.start(ANN, sandbox.id, command("exec sleep 100"))
        await wait_until(lambda: not shop.executions.under_way)

    tell(tmp_path, images_dir, story)


def test_without_a_record_there_is_no_answer_and_later_there_is_one(tmp_path: Path, images_dir: str) -> None:
    async def story(shop: Workshop, store: FullStore) -> None:
        sandbox = await shop.create()
        store.refuses_starts = store.refuses_finishes = True
        with pytest.raises(StoreError):
            await shop.executions.run(ANN, sandbox.id, command("echo x"))
        with pytest.raises(StoreError):
            await shop.executions.flush(sandbox.id)
        store.refuses_starts = store.refuses_finishes = False
        await shop.executions.flush(sandbox.id)
        (execution,) = (await shop.executions.list(ANN, sandbox.id)).items
        assert execution.result is not None
        assert execution.result.stdout == b"x\n"
        assert len(await shop.finishes(execution.id)) == 1
        assert (await shop.run(sandbox.id, "echo y", kind=SHELL)).ok

    tell(tmp_path, images_dir, story)


def test_a_finish_that_waits_is_visible_to_readers(tmp_path: Path, images_dir: str) -> None:
    async def story(shop: Workshop, store: FullStore) -> None:
        sandbox = await shop.create()
        store.refuses_finishes = True
        execution = await shop.executions.run(ANN, sandbox.id, command("echo x"))
        assert await shop.executions.get(ANN, sandbox.id, execution.id) == execution
        assert (await shop.executions.list(ANN, sandbox.id)).items == (execution,)
        events = [event async for event in await shop.executions.events(ANN, sandbox.id, execution.id)]
        assert events[-1].result == execution.result
        store.refuses_finishes = False
        assert await shop.finished(execution.id) == execution

    tell(tmp_path, images_dir, story)


def test_a_finish_that_is_written_while_the_store_is_read_is_seen_too(tmp_path: Path, images_dir: str) -> None:
    async def story(shop: Workshop, store: FullStore) -> None:
        sandbox = await shop.create()
        store.refuses_finishes = True
        execution = await shop.executions.run(ANN, sandbox.id, command("echo x"))

        async def write() -> None:
            store.refuses_finishes = False
            await shop.executions.flush(sandbox.id)

        store.after_listing = write
        (listed,) = (await shop.executions.list(ANN, sandbox.id)).items
        assert listed.result == execution.result

    tell(tmp_path, images_dir, story)


def test_the_audit_record_has_what_was_answered_just_now_and_has_it_once(tmp_path: Path, images_dir: str) -> None:
    async def story(shop: Workshop, store: FullStore) -> None:
        sandbox = await shop.create()
        store.refuses_finishes = True
        execution = await shop.executions.run(ANN, sandbox.id, command("echo x"))
        (row,) = (await shop.audit.list(ANN, AuditQuery(action="execution.finish"))).items
        assert row.entry.execution_id == execution.id
        store.refuses_finishes = False
        assert len(await shop.finishes(execution.id)) == 1

    tell(tmp_path, images_dir, story)


def test_two_who_find_that_their_key_made_nothing_run_it_once(tmp_path: Path, images_dir: str) -> None:
    async def story(shop: Workshop, store: FullStore) -> None:
        sandbox = await shop.create()
        new = command("echo x >> log; wc -l < log", idempotency_key="k")
        tied = build_fingerprint(sandbox.id, new)
        await store.remember(ANN.principal.owner, "k", tied, "exe_0000000000", ttl_s=60)
        others: list[Execution] = []

        async def run_too() -> None:
            others.append(await shop.executions.run(ANN, sandbox.id, new))

        store.after_looking = run_too
        execution = await shop.executions.run(ANN, sandbox.id, new)
        assert [each.id for each in others] == [execution.id]
        assert execution.result is not None
        assert execution.result.stdout.strip() == b"1"

    tell(tmp_path, images_dir, story)


def test_what_ends_while_it_is_looked_for_what_was_lost_is_not_lost(tmp_path: Path, images_dir: str) -> None:
    async def story(shop: Workshop, store: FullStore) -> None:
        sandbox = await shop.create()
        begun = await shop.executions.start(ANN, sandbox.id, command("mkfifo gate; read < gate; echo ended"))

        async def finish() -> None:
            await shop.executions.run(ANN, sandbox.id, command("until [ -p gate ]; do :; done; echo > gate"))
            await shop.finished(begun.id)
            await shop.executions.flush()

        store.after_running = finish
        await shop.executions.lose_rest()
        execution = await shop.executions.get(ANN, sandbox.id, begun.id)
        assert execution.result is not None
        assert execution.result.stdout == b"ended\n"

    tell(tmp_path, images_dir, story)


def test_a_service_that_ends_waits_for_no_unwritten_start(tmp_path: Path, images_dir: str) -> None:
    async def story(shop: Workshop, store: FullStore) -> None:
        sandbox = await shop.create()
        execution = await shop.executions.run(ANN, sandbox.id, command("echo x"))
        writer = ExecutionWriter(store, shop.audit, Policy())
        async with anyio.create_task_group() as tasks:
            writer.open(tasks)
            await anyio.wait_all_tasks_blocked()
            start = writer.start(execution)
            tasks.cancel_scope.cancel()
        await start.wait()

    tell(tmp_path, images_dir, story)
