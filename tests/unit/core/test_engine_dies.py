"""Processes of the local engine are killed while sandboxes are made, stopped and started: all is found again."""

from __future__ import annotations

import contextlib
import os
import signal
from functools import partial
from typing import TYPE_CHECKING

import anyio
import pytest

from e2e.story import Story, left_of
from unit.core.estate import ANN, Estate
from unit.local.forked import needs_root
from warren.core.policy.policy import Policy
from warren.core.sandboxes.sandboxes import NewSandbox
from warren.domain.errors import Error
from warren.domain.lifecycle import Status

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from warren.domain.values import Image

pytestmark = [pytest.mark.root, needs_root]


async def do_while_killing(pid: int, acts: list[Callable[[], Awaitable[object]]]) -> None:
    """Begin everything, kill a process in the middle of it, and wait for the end; errors of ours are answers too."""

    async def attempt(act: Callable[[], Awaitable[object]]) -> None:
        with contextlib.suppress(Error):
            await act()

    async with anyio.create_task_group() as tasks:
        for act in acts:
            tasks.start_soon(attempt, act)
        await anyio.wait_all_tasks_blocked()
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize("victim", ["keeper", "zygote"])
def test_records_and_engine_agree_whatever_is_killed(
    tmp_path: Path, images_dir: str, python_image: Image, victim: str
) -> None:
    story = Story(tmp_path, python_image)

    def pid() -> int:
        return story.keeper_pid if victim == "keeper" else story.zygote_pid

    async def go() -> None:
        estate = Estate(str(tmp_path), images_dir, Policy(image=python_image.name), story.engine)
        sandboxes = estate.sandboxes
        async with estate.open():
            first = await estate.create()
            await estate.cell(first.id, "x = 41")

            await do_while_killing(pid(), [partial(sandboxes.create, ANN, NewSandbox())] * 6)
            rows = await estate.rows()
            assert set(rows) == await estate.handles()
            assert {row.status for row in rows.values()} == {Status.RUNNING}
            assert (await estate.cell(first.id, "print(x + 1)")).stdout == b"42\n"

            others = [sandbox_id for sandbox_id in rows if sandbox_id != first.id]
            await do_while_killing(pid(), [partial(sandboxes.stop, ANN, each) for each in others])
            await do_while_killing(pid(), [partial(sandboxes.start, ANN, each) for each in others])
            for sandbox_id in rows:
                assert (await estate.shell(sandbox_id, "echo here")).stdout == b"here\n"

            await do_while_killing(pid(), [partial(sandboxes.delete, ANN, each) for each in others])
            await estate.reaper.tick()
            assert set(await estate.rows()) == await estate.handles() == {first.id}
            assert (await estate.cell(first.id, "print(x + 1)")).stdout == b"42\n"
            await sandboxes.delete(ANN, first.id)
        await story.clean()

    anyio.run(go)
    assert left_of(tmp_path) == []
