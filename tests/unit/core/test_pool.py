from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import anyio
import pytest

from unit.core.estate import ANN, BOB, EPHEMERAL, Estate, wait_until
from unit.local.forked import needs_root
from warren.core.policy.policy import Policy
from warren.core.sandboxes.pool import PooledSandbox, SandboxPool
from warren.core.sandboxes.sandboxes import NewSandbox
from warren.domain.errors import QuotaExceeded
from warren.domain.lifecycle import Status
from warren.domain.records import ResourceUse
from warren.domain.values import GIB, MIB, Cause, Limits, Storage
from warren.engines.local.engine import LocalEngine

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from warren.domain.values import Image

FULL = {"python/persistent": 1, "python/ephemeral": 1}


@contextlib.asynccontextmanager
async def filled(estate: Estate) -> AsyncIterator[set[str]]:
    """Keep the pool full, and say what was in it first."""
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(estate.pool.run)
        await wait_until(lambda: estate.pool.sizes() == FULL)
        yield await estate.handles()
        tasks.cancel_scope.cancel()
    await estate.pool.drain()


def test_a_create_takes_a_sandbox_that_waits(serve: Callable[..., None]) -> None:
    async def scenario(estate: Estate) -> None:
        async with filled(estate) as waiting:
            sandbox = await estate.create()

            assert sandbox.id in waiting
            assert set(await estate.rows()) == {sandbox.id}
            assert (await estate.shell(sandbox.id, "echo here")).stdout == b"here\n"
            await wait_until(lambda: estate.pool.sizes() == FULL)

    serve(scenario, pool_size=1)


def test_the_environment_of_a_claim_reaches_cells_and_commands(serve: Callable[..., None]) -> None:
    async def scenario(estate: Estate) -> None:
        async with filled(estate) as waiting:
            sandbox = await estate.create(env={"CITY": "Bern"})

            assert sandbox.id in waiting
            assert sandbox.status is Status.RUNNING
            assert (await estate.shell(sandbox.id, "echo $CITY")).stdout == b"Bern\n"
            assert (await estate.cell(sandbox.id, "import os; print(os.environ['CITY'])")).stdout == b"Bern\n"

    serve(scenario, pool_size=1)


@pytest.mark.parametrize(
    "limits",
    [Limits(disk_bytes=GIB), Limits(memory_bytes=256 * MIB)],
    ids=["another disk", "limits that this engine cannot change"],
)
def test_what_the_pool_cannot_serve_is_made(serve: Callable[..., None], limits: Limits) -> None:
    async def scenario(estate: Estate) -> None:
        async with filled(estate):
            sandbox = await estate.create(limits=limits)

            assert (sandbox.status, sandbox.limits) == (Status.RUNNING, limits)
            assert (await estate.shell(sandbox.id, "echo here")).stdout == b"here\n"

    serve(scenario, pool_size=1)


def test_a_sandbox_that_died_waiting_is_not_given_away(serve: Callable[..., None]) -> None:
    async def scenario(estate: Estate) -> None:
        async with filled(estate) as waiting:
            for sandbox_id in waiting:
                estate.kill_agent(sandbox_id)
            await wait_until(lambda: not any(map(estate.connections.peek, waiting)))

            sandbox = await estate.create(storage=EPHEMERAL)

            assert sandbox.id not in waiting
            assert (await estate.shell(sandbox.id, "echo here")).stdout == b"here\n"
        assert await estate.handles() == {sandbox.id}

    serve(scenario, pool_size=1)


def test_a_refused_create_gives_its_sandbox_back(serve: Callable[..., None]) -> None:
    async def scenario(estate: Estate) -> None:
        async with filled(estate):
            await estate.create()
            await wait_until(lambda: estate.pool.sizes() == FULL)
            waiting = await estate.handles()

            with pytest.raises(QuotaExceeded):
                await estate.create(env={"CITY": "Bern"})

            assert await estate.handles() == waiting
            assert estate.pool.sizes() == FULL

    serve(scenario, pool_size=1, own=ResourceUse(sandboxes=1))


class Waiting(SandboxPool):
    """A pool that is told when no caller wants a sandbox, and says what it made."""

    def __init__(self, estate: Estate) -> None:
        super().__init__(estate.engine, estate.store, estate.connections, estate.images, estate.policy)
        self.waits, self.is_quiet = anyio.Event(), anyio.Event()
        self.made = 0

    async def _wait_quiet(self) -> None:
        self.waits.set()
        await self.is_quiet.wait()

    async def _make(self, image: Image, storage: Storage) -> PooledSandbox:
        self.made += 1
        return await super()._make(image, storage)


def test_what_is_put_back_while_the_pool_waits_is_not_made_again(serve: Callable[..., None]) -> None:
    async def scenario(estate: Estate) -> None:
        pool = Waiting(estate)
        pool.is_quiet.set()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(pool.run)
            await wait_until(lambda: pool.sizes() == FULL)
            pool.waits, pool.is_quiet = anyio.Event(), anyio.Event()
            taken = await pool.acquire(await estate.images.get("python"), Storage.PERSISTENT, estate.policy.limits)
            assert taken is not None
            await pool.waits.wait()
            pool.release(taken)
            pool.is_quiet.set()
            await anyio.wait_all_tasks_blocked()
            assert (pool.made, pool.sizes()) == (2, FULL)
            tasks.cancel_scope.cancel()
        await pool.drain()

    serve(scenario, pool_size=1)


def test_racing_claims_for_a_session_key_waste_nothing(serve: Callable[..., None]) -> None:
    async def scenario(estate: Estate) -> None:
        async with filled(estate) as waiting:
            found: set[str] = set()

            async def create() -> None:
                sandbox, _ = await estate.sandboxes.create(ANN, NewSandbox(session_key="s", env={"A": "1"}))
                found.add(sandbox.id)

            async with anyio.create_task_group() as tasks:
                for _ in range(20):
                    tasks.start_soon(create)

            assert len(found) == 1
            assert set(await estate.rows()) == found
            assert len(await estate.handles() & waiting) == 2

    serve(scenario, pool_size=1)


def test_a_burst_is_served_and_the_pool_fills_again_after_it(serve: Callable[..., None]) -> None:
    async def scenario(estate: Estate) -> None:
        async with filled(estate):
            async with anyio.create_task_group() as tasks:
                for caller in (ANN, BOB) * 4:
                    tasks.start_soon(estate.create, caller)

            assert len(await estate.rows()) == 8
            await wait_until(lambda: estate.pool.sizes() == FULL)
            assert len(await estate.handles()) == 10

    serve(scenario, pool_size=1)


@pytest.mark.root
@needs_root
def test_limits_of_a_claim_are_applied_to_the_sandbox_that_waited(
    tmp_path: Path, images_dir: str, python_image: Image
) -> None:
    async def go() -> None:
        engine = LocalEngine(str(tmp_path))
        estate = Estate(str(tmp_path), images_dir, Policy(image=python_image.name, pool_size=1), engine)
        try:
            async with estate.open(), filled(estate) as waiting:
                sandbox = await estate.create(limits=Limits(memory_bytes=96 * MIB, checkpoint_bytes=0))

                assert sandbox.id in waiting
                result = await estate.cell(sandbox.id, "x = bytearray(200 << 20)")
                assert result.cause is Cause.OOM
                await estate.sandboxes.delete(ANN, sandbox.id)
        finally:
            await engine.retire()

    anyio.run(go)


def test_draining_leaves_nothing(serve: Callable[..., None]) -> None:
    async def scenario(estate: Estate) -> None:
        async with filled(estate):
            pass

        assert (await estate.handles(), estate.pool.sizes()) == (set(), {})

    serve(scenario, pool_size=1)
