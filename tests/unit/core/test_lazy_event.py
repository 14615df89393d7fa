"""Something that happens once, with and without somebody who waits for it."""

from __future__ import annotations

import anyio

from warren.core.executions.writer import LazyEvent


def test_who_waits_goes_on_when_it_happens_and_who_comes_late_goes_on_at_once() -> None:
    async def story() -> list[str]:
        flag, told = LazyEvent(), list[str]()

        async def wait(name: str) -> None:
            await flag.wait()
            told.append(name)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(wait, "first")
            tasks.start_soon(wait, "second")
            await anyio.wait_all_tasks_blocked()
            assert (flag.is_set(), told) == (False, [])
            flag.set()
            await flag.wait()
            told.append("late")
        assert flag.is_set()
        return told

    assert anyio.run(story) == ["late", "first", "second"]
