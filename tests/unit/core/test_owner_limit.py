"""Owner limit: which transfers wait, which are refused, and that no owner is left behind."""

from __future__ import annotations

import contextlib

import anyio
import pytest

from warren.core.concurrency.fair_queue import OwnerLimiter
from warren.core.telemetry.counters import Counters
from warren.domain.errors import Overloaded, QuotaExceeded
from warren.domain.records import Owner

ANN, BOB = Owner("t", "ann"), Owner("t", "bob")


def test_one_owner_cannot_take_all_places() -> None:
    async def story() -> None:
        transfers = OwnerLimiter(Counters(), own=2, everybody=3, wait_s=0.01)
        async with transfers.one(ANN), transfers.one(ANN):
            with pytest.raises(QuotaExceeded, match="of yours"):
                async with transfers.one(ANN):
                    pass
            async with transfers.one(BOB):
                assert transfers.everybody.inside == 3

    anyio.run(story)


def test_owners_who_never_finish_leave_room_for_the_next() -> None:
    async def story() -> None:
        transfers = OwnerLimiter(Counters(), own=32, everybody=128, wait_s=0.01)
        async with contextlib.AsyncExitStack() as held:
            for owner in (Owner("t", f"greedy {number}") for number in range(4)):
                with contextlib.suppress(Overloaded, QuotaExceeded):
                    for _ in range(32):
                        await held.enter_async_context(transfers.one(owner))
            assert transfers.everybody.inside > 100
            for number in range(8):
                await held.enter_async_context(transfers.one(Owner("t", f"new {number}")))

    anyio.run(story)


def test_when_all_places_are_taken_the_service_is_overloaded() -> None:
    async def story() -> None:
        observer = Counters()
        transfers = OwnerLimiter(observer, own=2, everybody=2, wait_s=0.01)
        async with transfers.one(ANN), transfers.one(ANN):
            with pytest.raises(Overloaded):
                async with transfers.one(BOB):
                    pass
        assert observer.registry.get_sample_value("warren_rejected_total", {"reason": "waited_too_long"}) == 1
        async with transfers.one(BOB):
            assert transfers.everybody.inside == 1

    anyio.run(story)


def test_a_waiter_is_admitted_when_another_leaves() -> None:
    async def story() -> None:
        transfers = OwnerLimiter(Counters(), own=1, everybody=1, wait_s=30)
        order: list[str] = []

        async def second() -> None:
            async with transfers.one(ANN):
                order.append("second")

        with anyio.fail_after(10):
            async with anyio.create_task_group() as tasks, transfers.one(ANN):
                tasks.start_soon(second)
                await anyio.wait_all_tasks_blocked()
                order.append("first")
        assert order == ["first", "second"]

    anyio.run(story)


def test_nothing_is_kept_of_an_owner_who_left() -> None:
    async def story() -> None:
        transfers = OwnerLimiter(Counters(), own=1, everybody=1, wait_s=0.01)
        for number in range(100):
            with contextlib.suppress(ZeroDivisionError):
                async with transfers.one(Owner("t", str(number))):
                    raise ZeroDivisionError
        assert (transfers._own, transfers.everybody.inside) == ({}, 0)

    anyio.run(story)
