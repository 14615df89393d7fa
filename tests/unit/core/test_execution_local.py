"""Executions and one-shots in real sandboxes: what only those have is recorded too."""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio
import pytest

from unit.core.estate import ANN, EPHEMERAL, wait_until
from unit.core.workshop import Workshop, command, first_output
from unit.local.forked import needs_root
from warren.core.executions.executions import NewExecution
from warren.core.executions.oneshot import OneShot
from warren.core.policy.policy import Policy
from warren.domain.values import MIB, Cause, ExecKind, Limits, State
from warren.engines.local.engine import LocalEngine

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from warren.domain.values import Image

pytestmark = [pytest.mark.root, needs_root]


def tell(tmp_path: Path, images_dir: str, image: Image, story: Callable[[Workshop], Awaitable[None]]) -> None:
    async def told() -> None:
        engine = LocalEngine(str(tmp_path))
        shop = Workshop(str(tmp_path), images_dir, Policy(image=image.name), engine)
        try:
            with anyio.fail_after(60):
                async with shop.working():
                    await story(shop)
        finally:
            with anyio.CancelScope(shield=True):
                await shop.clean()
                await engine.retire()

    anyio.run(told)


def test_memory_that_ran_out_is_in_the_record_and_the_variables_are_not_lost(
    tmp_path: Path, images_dir: str, python_image: Image
) -> None:
    async def story(shop: Workshop) -> None:
        sandbox = await shop.create(limits=Limits(memory_bytes=96 * MIB))
        await shop.run(sandbox.id, "x = 5")
        execution = await shop.executions.run(ANN, sandbox.id, NewExecution(code="x = bytearray(400 << 20)"))
        kept = (await shop.finished(execution.id)).result
        assert kept is not None
        assert (kept.cause, kept.state) == (Cause.OOM, State.ROLLED_BACK)
        (entry,) = await shop.finishes(execution.id)
        assert (entry.details["cause"], entry.details["state"]) == ("oom", "rolled_back")
        assert (await shop.run(sandbox.id, "print(x)")).stdout == b"5\n"

    tell(tmp_path, images_dir, python_image, story)


def test_a_sandbox_that_is_destroyed_underneath_is_a_result_and_an_audit_entry(
    tmp_path: Path, images_dir: str, python_image: Image
) -> None:
    async def story(shop: Workshop) -> None:
        sandbox = await shop.create(storage=EPHEMERAL)
        running = await shop.executions.begin(ANN, sandbox.id, command("echo said; exec sleep 100"))
        await first_output(shop, sandbox.id, running.execution.id)
        await shop.engine.destroy(shop.transitions.live_sandboxes[sandbox.id].handle)
        done = await running.wait()
        assert done.result is not None
        assert (done.result.cause, done.result.stdout) == (Cause.LOST, b"said\n")
        (entry,) = await shop.finishes(running.execution.id)
        assert entry.details["cause"] == "lost"

    tell(tmp_path, images_dir, python_image, story)


def test_one_shots_leave_no_sandbox(tmp_path: Path, images_dir: str, python_image: Image) -> None:
    async def story(shop: Workshop) -> None:
        async def shoot(number: int) -> None:
            request = NewExecution(kind=ExecKind.SCRIPT, code=f"open('n', 'w').write(open('in').read() * {number})")
            done = await shop.oneshots.run(ANN, OneShot(request=request, files={"in": b"x"}))
            assert [(file.path, file.content) for file in done.files] == [("n", b"x" * number)]

        async with anyio.create_task_group() as tasks:
            for number in range(1, 9):
                tasks.start_soon(shoot, number)
        await wait_until(lambda: not shop.transitions.live_sandboxes)
        assert await shop.handles() == set()

    tell(tmp_path, images_dir, python_image, story)
