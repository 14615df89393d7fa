from __future__ import annotations

import contextlib
import dataclasses
import logging
import time
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from unit.core.estate import ADMIN, ANN, BOB, EPHEMERAL, Estate, wait_until
from warren.core.policy.policy import Policy
from warren.core.sandboxes.changes import SandboxChanges
from warren.domain.errors import Conflict, Forbidden, NotFound
from warren.domain.lifecycle import Status
from warren.domain.records import Sandbox
from warren.domain.values import Handle, SandboxSpec, Storage, new_id
from warren.stores.memory import MemoryStore

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from pathlib import Path

    from warren.domain.values import Image


@pytest.fixture
def lifetimes(tmp_path: Path, images_dir: str, python_image: Image) -> Callable[..., None]:
    """Run one scenario after the other, each in a service of its own over the same data folder."""

    async def go(scenarios: tuple[Callable[[Estate], Awaitable[None]], ...]) -> None:
        try:
            for scenario in scenarios:
                async with Estate(str(tmp_path), images_dir, Policy(image=python_image.name)).open() as estate:
                    await scenario(estate)
        finally:
            with anyio.CancelScope(shield=True):
                await estate.clean()

    return lambda *scenarios: anyio.run(go, scenarios)


def build_row(image: Image, **fields: Any) -> Sandbox:
    now = time.time()
    row = Sandbox(
        id=new_id("sbx"),
        owner=ANN.principal.owner,
        status=Status.RUNNING,
        engine="bare",
        image=image.name,
        image_digest=image.digest,
        created_at=now,
        active_at=now,
        changed_at=now,
    )
    return dataclasses.replace(row, **fields)


def test_running_sandboxes_are_found_with_their_variables(lifetimes: Callable[..., None]) -> None:
    made: list[str] = []

    async def before(estate: Estate) -> None:
        made.extend([(await estate.create()).id, (await estate.create(storage=EPHEMERAL)).id])
        for sandbox_id in made:
            await estate.cell(sandbox_id, "x = 41")

    async def after(estate: Estate) -> None:
        assert (sorted(estate.adopted), estate.recovered) == (sorted(made), {"running": 2})
        for sandbox_id in made:
            assert (await estate.cell(sandbox_id, "print(x + 1)")).stdout == b"42\n"

    lifetimes(before, after)


def test_what_died_meanwhile_is_stopped_or_removed(lifetimes: Callable[..., None]) -> None:
    made: list[str] = []

    async def before(estate: Estate) -> None:
        made.extend([(await estate.create()).id, (await estate.create(storage=EPHEMERAL)).id])
        await estate.shell(made[0], "echo 1 > kept.txt")
        for sandbox_id in made:
            await estate.connections.drop(sandbox_id)
            estate.kill_agent(sandbox_id)

    async def after(estate: Estate) -> None:
        assert (estate.adopted, estate.recovered) == ([], {"stopped": 1, "removed": 1})
        assert await estate.handles() == set(await estate.rows()) == {made[0]}
        assert (await estate.shell(made[0], "cat kept.txt")).stdout == b"1\n"
        assert await estate.audited("sandbox.lost") == ["sandbox_lost", "sandbox_lost"]

    lifetimes(before, after)


@pytest.mark.parametrize(
    ("was", "then"),
    [
        (Status.CREATING, None),
        (Status.DESTROYING, None),
        (Status.STARTING, Status.STOPPED),
        (Status.STOPPING, Status.STOPPED),
    ],
)
def test_what_was_under_way_is_finished(
    lifetimes: Callable[..., None], python_image: Image, was: Status, then: Status | None
) -> None:
    row = build_row(python_image, status=was)

    async def before(estate: Estate) -> None:
        await estate.engine.create(SandboxSpec(id=row.id, image=python_image, storage=row.storage))
        await estate.store.add(row)

    async def after(estate: Estate) -> None:
        rows = await estate.rows()
        assert {sandbox_id: sandbox.status for sandbox_id, sandbox in rows.items()} == ({row.id: then} if then else {})
        assert await estate.handles() == set(rows)
        if then is not None:
            assert (await estate.shell(row.id, "echo again")).stdout == b"again\n"

    lifetimes(before, after)


@pytest.mark.parametrize("status", list(Status))
def test_a_record_of_what_is_not_there_is_removed(
    lifetimes: Callable[..., None], python_image: Image, status: Status
) -> None:
    async def before(estate: Estate) -> None:
        await estate.store.add(build_row(python_image, status=status))

    async def after(estate: Estate) -> None:
        assert (await estate.rows(), estate.recovered) == ({}, {"removed": 1})

    lifetimes(before, after)


def test_what_the_store_does_not_know_is_destroyed_unless_a_command_has_it(
    lifetimes: Callable[..., None], python_image: Image
) -> None:
    ours, commands = new_id("sbx"), new_id("run")

    async def before(estate: Estate) -> None:
        for sandbox_id in (ours, commands):
            await estate.engine.create(SandboxSpec(id=sandbox_id, image=python_image))

    async def after(estate: Estate) -> None:
        assert (await estate.handles(), estate.recovered) == ({commands}, {"strays": 1})
        await estate.engine.destroy(Handle("bare", commands))

    lifetimes(before, after)


def test_stopped_sandboxes_stay_stopped(lifetimes: Callable[..., None]) -> None:
    made: list[str] = []

    async def before(estate: Estate) -> None:
        made.append((await estate.create(session_key="s")).id)
        await estate.sandboxes.stop(ANN, made[0])

    async def after(estate: Estate) -> None:
        assert (await estate.sandboxes.get(ANN, made[0])).status is Status.STOPPED
        assert (await estate.create(session_key="s")).id == made[0]

    lifetimes(before, after)


def test_an_image_that_was_rebuilt_is_started_from_its_current_build(
    lifetimes: Callable[..., None], python_image: Image
) -> None:
    row = build_row(python_image, status=Status.STOPPED, image_digest="f" * 32)

    async def before(estate: Estate) -> None:
        handle = await estate.engine.create(SandboxSpec(id=row.id, image=python_image, storage=row.storage))
        await estate.engine.stop(handle)
        await estate.store.add(row)

    async def after(estate: Estate) -> None:
        started = await estate.sandboxes.start(ANN, row.id)

        assert (started.status, started.image_digest) == (Status.RUNNING, python_image.digest)
        assert "is gone: it runs on the current one" in (started.reason or "")

    lifetimes(before, after)


FOREIGN = [{"engine": "local"}, {"engine": "local", "reach": "f" * 32}, {"reach": "f" * 32}]


@pytest.mark.parametrize("fields", FOREIGN)
@pytest.mark.parametrize("status", list(Status))
def test_a_record_of_another_engine_is_left_alone(
    lifetimes: Callable[..., None], python_image: Image, fields: dict[str, str], status: Status
) -> None:
    # Expired too: the reaper of its own engine ends it.
    row = build_row(python_image, status=status, max_lifetime_s=0.001, idle_timeout_s=0.001, **fields)

    async def before(estate: Estate) -> None:
        await estate.store.add(row)

    async def after(estate: Estate) -> None:
        await estate.reaper.tick()

        assert (await estate.rows(), estate.recovered, estate.adopted) == ({row.id: row}, {"foreign": 1}, [])
        assert await estate.sandboxes.get(ANN, row.id) == row
        assert await estate.audited("sandbox.lost") == []

    lifetimes(before, after, after)


@pytest.mark.parametrize("fields", FOREIGN)
def test_every_use_of_a_sandbox_of_another_engine_is_a_conflict_that_names_both(
    lifetimes: Callable[..., None], python_image: Image, fields: dict[str, str]
) -> None:
    row = build_row(python_image, session_key="s", **fields)

    async def scenario(estate: Estate) -> None:
        await estate.store.add(row)
        sandboxes = estate.sandboxes
        uses: list[Callable[[], Awaitable[object]]] = [
            lambda: estate.shell(row.id, "true"),
            lambda: estate.create(session_key="s"),
            lambda: sandboxes.start(ANN, row.id),
            lambda: sandboxes.stop(ANN, row.id),
            lambda: sandboxes.delete(ANN, row.id),
            lambda: sandboxes.delete(ADMIN, row.id),
            lambda: sandboxes.usage(ANN, row.id),
            lambda: sandboxes.update(ANN, row.id, SandboxChanges(metadata={"a": "b"})),
        ]
        for use in uses:
            with pytest.raises(Conflict, match="belongs to another engine") as caught:
                await use()
            theirs, ours = str(caught.value).split(", and this service runs ")
            assert fields.get("engine", "bare") in theirs
            assert ours.startswith("bare")
        # Only those who see it hear of its engine.
        with pytest.raises(NotFound):
            await sandboxes.delete(BOB, row.id)
        await estate.reaper.tick()
        assert await estate.rows() == {row.id: row}

    lifetimes(scenario)


def test_only_an_admin_makes_the_store_forget_a_sandbox_and_only_one_of_another_engine(
    lifetimes: Callable[..., None], python_image: Image
) -> None:
    row = build_row(python_image, engine="local")

    async def scenario(estate: Estate) -> None:
        await estate.store.add(row)
        mine = await estate.create()
        with pytest.raises(Forbidden):
            await estate.sandboxes.forget(ANN, row.id)
        with pytest.raises(Conflict, match="delete it without forget"):
            await estate.sandboxes.forget(ADMIN, mine.id)
        with pytest.raises(NotFound):
            await estate.sandboxes.forget(ADMIN, new_id("sbx"))
        assert set(await estate.rows()) == {row.id, mine.id}
        await estate.sandboxes.forget(ADMIN, row.id)

        assert set(await estate.rows()) == await estate.handles() == {mine.id}
        assert (await estate.audited("sandbox.forget"))[-1] == "ok"

    lifetimes(scenario)


def test_a_store_that_is_new_to_an_engine_destroys_nothing_of_another_store(
    tmp_path: Path, images_dir: str, python_image: Image, caplog: pytest.LogCaptureFixture
) -> None:
    policy = Policy(image=python_image.name)

    async def tell() -> None:
        made: list[str] = []
        first = Estate(str(tmp_path), images_dir, policy)
        async with first.open():
            made += [(await first.create()).id, (await first.create(storage=EPHEMERAL)).id]
            await first.shell(made[0], "echo 1 > kept.txt")
            await first.sandboxes.stop(ANN, made[0])
        try:
            second = Estate(str(tmp_path), images_dir, policy, store=MemoryStore())
            async with second.open():
                assert (await second.handles(), second.recovered) == (set(made), {"strays_skipped": 2})
            again = Estate(str(tmp_path), images_dir, policy)
            async with again.open():
                assert again.recovered == {"running": 1, "stopped": 1}
                assert (await again.shell(made[0], "cat kept.txt")).stdout == b"1\n"
        finally:
            await first.clean()

    with caplog.at_level(logging.WARNING):
        anyio.run(tell)
    (kept,) = [vars(record) for record in caplog.records if record.message == "recovery.strays_skipped"]
    assert kept["count"] == 2
    assert "warren stop-engine --sandboxes" in kept["remedy"]


def test_two_stores_on_one_engine_leave_each_other_their_pools(
    tmp_path: Path, images_dir: str, python_image: Image
) -> None:
    policy = Policy(image=python_image.name, pool_size=1)

    @contextlib.asynccontextmanager
    async def filled(estate: Estate) -> AsyncIterator[set[str]]:
        async with estate.open(), anyio.create_task_group() as tasks:
            before = await estate.handles()
            tasks.start_soon(estate.pool.run)
            await wait_until(lambda: sum(estate.pool.sizes().values()) == 2)
            yield await estate.handles() - before
            tasks.cancel_scope.cancel()

    async def tell() -> None:
        estates = [Estate(str(tmp_path), images_dir, policy, store=MemoryStore()) for _ in range(2)]
        again = Estate(str(tmp_path), images_dir, policy, store=MemoryStore(estates[0].store.tables))  # type: ignore[attr-defined]
        try:
            async with filled(estates[0]) as first, filled(estates[1]) as second:
                # As after kill -9: the store is the same, and the pool starts empty.
                async with again.open():
                    assert again.recovered == {"strays": 2, "strays_skipped": 2}
                    assert await again.handles() == second
                assert not first & second
        finally:
            await again.clean()

    anyio.run(tell)


def test_of_sandboxes_that_name_no_store_the_persistent_ones_stay(
    lifetimes: Callable[..., None], python_image: Image
) -> None:
    kept, fleeting = new_id("sbx"), new_id("sbx")

    async def before(estate: Estate) -> None:
        await estate.engine.create(SandboxSpec(id=kept, image=python_image, storage=Storage.PERSISTENT))
        await estate.engine.create(SandboxSpec(id=fleeting, image=python_image))

    async def after(estate: Estate) -> None:
        assert (await estate.handles(), estate.recovered) == ({kept}, {"strays": 1, "strays_skipped": 1})

    lifetimes(before, after)
