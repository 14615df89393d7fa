from __future__ import annotations

import os
from typing import TYPE_CHECKING

import anyio
import pytest

from unit.core.estate import ANN, EPHEMERAL, Estate, wait_until
from warren.core.sandboxes.changes import SandboxChanges
from warren.domain.errors import StartFailed
from warren.domain.lifecycle import Status

if TYPE_CHECKING:
    from collections.abc import Callable

SOON = 0.05


async def reap_until(estate: Estate, condition: Callable[[], object]) -> None:
    """Have the reaper look again and again until what was due has happened."""
    with anyio.fail_after(60):
        while not condition():
            await estate.reaper.tick()
            await anyio.sleep(0.01)


def test_an_idle_sandbox_is_stopped_and_says_why(serve: Callable[..., None]) -> None:
    async def scenario(estate: Estate) -> None:
        sandbox = await estate.create(idle_timeout_s=SOON)
        other = await estate.create()
        live = estate.transitions.live_sandboxes[sandbox.id]

        await reap_until(estate, lambda: live.sandbox.status is Status.STOPPED)

        assert "it was idle for 0.05 seconds" in ((await estate.sandboxes.get(ANN, sandbox.id)).reason or "")
        assert (await estate.sandboxes.get(ANN, other.id)).status is Status.RUNNING
        assert await estate.audited("sandbox.stop") == ["ok"]
        assert (await estate.shell(sandbox.id, "echo back")).stdout == b"back\n"

    serve(scenario)


def test_an_idle_ephemeral_sandbox_is_destroyed(serve: Callable[..., None]) -> None:
    async def scenario(estate: Estate) -> None:
        await estate.create(storage=EPHEMERAL, idle_timeout_s=SOON)

        await reap_until(estate, lambda: not estate.transitions.live_sandboxes)

        assert (await estate.rows(), await estate.handles()) == ({}, set())
        assert await estate.audited("sandbox.delete") == ["ok"]

    serve(scenario)


def test_a_busy_sandbox_is_left_alone_however_long_it_takes(serve: Callable[..., None]) -> None:
    async def scenario(estate: Estate) -> None:
        sandbox = await estate.create(idle_timeout_s=SOON)
        live = estate.transitions.live_sandboxes[sandbox.id]
        async with estate.sandboxes.use(ANN, sandbox.id), anyio.create_task_group() as tasks:
            idle = await estate.create(idle_timeout_s=SOON)
            other = estate.transitions.live_sandboxes[idle.id]
            tasks.start_soon(reap_until, estate, lambda: other.sandbox.status is Status.STOPPED)

        assert live.sandbox.status is Status.RUNNING
        await reap_until(estate, lambda: live.sandbox.status is Status.STOPPED)

    serve(scenario)


def test_an_expired_sandbox_is_destroyed_though_it_is_used(serve: Callable[..., None]) -> None:
    async def scenario(estate: Estate) -> None:
        sandbox = await estate.create()
        async with estate.sandboxes.use(ANN, sandbox.id):
            await estate.sandboxes.update(ANN, sandbox.id, SandboxChanges(max_lifetime_s=SOON))
            await reap_until(estate, lambda: not estate.transitions.live_sandboxes)

        assert (await estate.rows(), await estate.handles()) == ({}, set())

    serve(scenario)


def test_a_forgotten_sandbox_is_destroyed(serve: Callable[..., None]) -> None:
    async def scenario(estate: Estate) -> None:
        kept = await estate.create()
        stopped = await estate.create()
        await estate.sandboxes.stop(ANN, stopped.id)

        await reap_until(estate, lambda: stopped.id not in estate.transitions.live_sandboxes)

        assert set(await estate.rows()) == await estate.handles() == {kept.id}

    serve(scenario, stopped_lifetime_s=SOON)


def test_what_could_not_be_removed_is_removed_later(serve: Callable[..., None]) -> None:
    async def scenario(estate: Estate) -> None:
        sandbox = await estate.create()
        live = estate.transitions.live_sandboxes[sandbox.id]
        home = os.path.join(estate.data_dir, "bare")
        os.rename(home, f"{home}.away")
        await anyio.Path(home).write_text("a file, where the engine's folder was")
        with pytest.raises(StartFailed):
            await estate.sandboxes.delete(ANN, sandbox.id)
        assert (await estate.sandboxes.get(ANN, sandbox.id)).status is Status.DESTROYING
        os.unlink(home)
        os.rename(f"{home}.away", home)

        await reap_until(estate, lambda: live.is_gone)

        assert (await estate.rows(), await estate.handles()) == ({}, set())

    serve(scenario)


def test_what_the_store_could_not_write_is_tried_again_as_soon_as_it_can(serve: Callable[..., None]) -> None:
    """Well before what failed for another reason is."""

    async def scenario(estate: Estate) -> None:
        await estate.create(storage=EPHEMERAL, idle_timeout_s=SOON)
        (live,) = estate.transitions.live_sandboxes.values()
        await estate.store.close()

        await reap_until(estate, lambda: live.sandbox.status is Status.DESTROYING)
        await estate.reaper.tick()
        assert live.id in estate.transitions.live_sandboxes
        await estate.store.open()
        await reap_until(estate, lambda: not estate.transitions.live_sandboxes)

        assert (await estate.rows(), await estate.handles()) == ({}, set())

    serve(scenario)


def test_it_looks_by_itself(serve: Callable[..., None]) -> None:
    async def scenario(estate: Estate) -> None:
        sandbox = await estate.create(idle_timeout_s=SOON)
        live = estate.transitions.live_sandboxes[sandbox.id]
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(estate.reaper.run)
            await wait_until(lambda: live.sandbox.status is Status.STOPPED)
            tasks.cancel_scope.cancel()

    serve(scenario)


def test_one_that_is_started_or_found_again_is_not_idle_since_before_that(serve: Callable[..., None]) -> None:
    async def scenario(estate: Estate) -> None:
        stopped = await estate.create(idle_timeout_s=60)
        found = await estate.create(storage=EPHEMERAL, session_key="s", idle_timeout_s=60)
        await estate.sandboxes.stop(ANN, stopped.id)
        for live in estate.transitions.live_sandboxes.values():
            live.used_at -= 3600

        await estate.sandboxes.start(ANN, stopped.id)
        again = await estate.create(storage=EPHEMERAL, session_key="s")
        await estate.reaper.tick()

        assert again.id == found.id
        assert {id_: each.status for id_, each in (await estate.rows()).items()} == {
            stopped.id: Status.RUNNING,
            found.id: Status.RUNNING,
        }

    serve(scenario)
