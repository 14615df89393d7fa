from __future__ import annotations

import dataclasses
import time
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from unit.core.estate import ANN, EPHEMERAL, Estate
from warren.core.policy.policy import Policy
from warren.domain.lifecycle import Status
from warren.domain.records import Sandbox
from warren.domain.values import Handle, SandboxSpec, new_id

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
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
