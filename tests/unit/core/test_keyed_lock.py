"""Keyed lock: one holder per key, waiters in order, a limit for the wait, and no key left behind."""

from __future__ import annotations

import anyio
import pytest

from warren.core.concurrency.keyed_lock import KeyedLock


def test_callers_hold_a_key_one_after_the_other_and_other_keys_at_once() -> None:
    async def story() -> list[str]:
        lock, order = KeyedLock(), list[str]()

        async def hold(name: str) -> None:
            async with lock.hold("a"):
                order.append(name)

        async with anyio.create_task_group() as tasks, lock.hold("a"), lock.hold("b"):
            tasks.start_soon(hold, "first")
            tasks.start_soon(hold, "second")
            await anyio.wait_all_tasks_blocked()
            assert (lock.users("a"), lock.users("b"), order) == (3, 1, [])
        assert (lock.users("a"), lock._entries) == (0, {})
        return order

    assert anyio.run(story) == ["first", "second"]


def test_a_caller_that_waits_too_long_gives_up_and_the_holder_keeps_the_key() -> None:
    async def story() -> None:
        lock = KeyedLock()

        async def wait() -> None:
            with pytest.raises(TimeoutError):
                async with lock.hold("a", 0.01):
                    raise AssertionError("it is held")

        async with lock.hold("a"):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(wait)
            assert lock.users("a") == 1
        async with lock.hold("a", 5):
            assert lock.users("a") == 1

    anyio.run(story)


def test_a_timeout_of_the_body_is_its_own() -> None:
    async def story() -> None:
        lock = KeyedLock()
        with pytest.raises(TimeoutError, match="mine"):
            async with lock.hold("a", 5):
                raise TimeoutError("mine")
        assert lock._entries == {}

    anyio.run(story)
