"""Rates, ceilings and the line in front of them."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import anyio
import pytest
from anyio import wait_all_tasks_blocked
from hypothesis import given, settings
from hypothesis import strategies as st

from warren.core.concurrency.admission import Admission, RateExceeded
from warren.core.concurrency.fair_queue import SHARE
from warren.core.policy.policy import Policy, TenantLimits
from warren.core.telemetry.counters import Counters
from warren.domain.errors import Overloaded, QuotaExceeded
from warren.domain.records import Principal
from warren.stores.sqlite import SqliteStore

if TYPE_CHECKING:
    from anyio.abc import TaskGroup

ANN, BOB, EVE = (Principal(subject=name) for name in ("ann", "bob", "eve"))


def build(observer: Counters | None = None, **choices: Any) -> Admission:
    # Rates are kept in memory, so the store need not be open.
    return Admission(SqliteStore("unopened"), Policy(**choices), observer)


class Visitor:
    """One execution that lasts until it is told to go."""

    def __init__(self, admission: Admission, principal: Principal) -> None:
        self.principal = principal
        self.inside = False
        self.refused: Exception | None = None
        self.ended = False
        self.scope = anyio.CancelScope()
        self._admission = admission
        self._go = anyio.Event()

    def go(self) -> None:
        self._go.set()

    async def run(self) -> None:
        with self.scope:
            try:
                async with self._admission.executing(self.principal):
                    self.inside = True
                    await self._go.wait()
            except (QuotaExceeded, Overloaded) as exc:
                self.refused = exc
            finally:
                self.inside = False
                self.ended = True


def start(group: TaskGroup, admission: Admission, principal: Principal) -> Visitor:
    visitor = Visitor(admission, principal)
    group.start_soon(visitor.run)
    return visitor


async def leave_one_by_one(visitors: list[Visitor]) -> list[str]:
    """Let those inside go until none is left; return who came in, in order."""
    order: list[str] = []
    while True:
        await wait_all_tasks_blocked()
        inside = [each for each in visitors if each.inside]
        if not inside:
            return order
        order.append(inside[0].principal.subject)
        inside[0].go()


def test_a_principal_at_its_own_ceiling_is_refused_at_once() -> None:
    async def check() -> None:
        admission = build(own_executions=2)
        async with admission.executing(ANN), admission.executing(ANN):
            with pytest.raises(QuotaExceeded, match="executions at once, 2") as caught:
                async with admission.executing(ANN):
                    pass
            async with admission.executing(BOB):
                assert admission.executions.inside == 3
        assert caught.value.retry_after_s > 0
        assert admission.own_executions(ANN.owner) == 0

    anyio.run(check)


def test_those_who_wait_are_served_in_turn() -> None:
    async def check() -> None:
        admission = build(executions=1)
        visitors: list[Visitor] = []
        async with anyio.create_task_group() as group:
            for principal in (EVE, ANN, ANN, ANN, BOB, BOB):
                visitors.append(start(group, admission, principal))
                await wait_all_tasks_blocked()
            order = await leave_one_by_one(visitors)
        assert order == ["eve", "ann", "bob", "ann", "bob", "ann"]

    anyio.run(check)


def test_a_wait_that_is_too_long_ends_with_a_503_and_advice() -> None:
    async def check() -> None:
        admission = build(creates=1, wait_s=0.01)
        async with admission.creating(ANN):
            with pytest.raises(Overloaded, match=r"waited 0\.01 s") as caught:
                async with admission.creating(BOB):
                    pass
        assert caught.value.retry_after_s > 0
        assert (admission.creates.inside, admission.creates.waiting) == (0, 0)

    anyio.run(check)


def test_a_full_line_turns_newcomers_away() -> None:
    async def check() -> None:
        admission = build(executions=1, waiting=1)
        async with anyio.create_task_group() as group:
            visitors = [start(group, admission, each) for each in (ANN, BOB, EVE)]
            await wait_all_tasks_blocked()
            assert isinstance(visitors[2].refused, Overloaded)
            await leave_one_by_one(visitors)
        assert [each.refused for each in visitors[:2]] == [None, None]

    anyio.run(check)


def test_one_principal_cannot_fill_the_line_for_all() -> None:
    async def check() -> None:
        admission = build(executions=1, waiting=3)
        async with anyio.create_task_group() as group:
            eves = [start(group, admission, EVE) for _ in range(4)]
            await wait_all_tasks_blocked()
            ann = start(group, admission, ANN)
            await wait_all_tasks_blocked()
            refused = [each for each in eves if each.refused]
            order = await leave_one_by_one([*eves, ann])
        assert len(refused) == 1
        assert isinstance(refused[0].refused, Overloaded)
        assert order == ["eve", "eve", "ann", "eve"]

    anyio.run(check)


def test_a_few_principals_who_never_let_go_leave_room_for_the_next() -> None:
    async def check() -> None:
        admission = build(executions=256, own_executions=64)
        greedy = [Principal(subject=f"greedy {number}") for number in range(4)]
        async with anyio.create_task_group() as group:
            visitors = [start(group, admission, each) for _ in range(64) for each in greedy]
            await wait_all_tasks_blocked()
            held = [sum(each.inside for each in visitors if each.principal is one) for one in greedy]
            newcomers = [start(group, admission, Principal(subject=f"new {number}")) for number in range(20)]
            await wait_all_tasks_blocked()
            served = sum(each.inside for each in newcomers)
            group.cancel_scope.cancel()
        assert min(held) >= 50
        assert served == 20

    anyio.run(check)


def test_a_wait_for_reserved_capacity_ends_with_that_reason() -> None:
    async def check() -> None:
        admission = build(executions=4, wait_s=0.01)
        async with admission.executing(ANN), admission.executing(ANN), admission.executing(ANN):
            with pytest.raises(Overloaded, match="you hold 3 places for executions, and the last 1 are kept"):
                await admission.executing(ANN).__aenter__()

    anyio.run(check)


def test_a_waiter_for_a_share_is_admitted_once_there_is_more() -> None:
    async def check() -> None:
        admission = build(executions=4)
        async with anyio.create_task_group() as group:
            anns = [start(group, admission, ANN) for _ in range(4)]
            await wait_all_tasks_blocked()
            assert sum(each.inside for each in anns) == 3
            bob = start(group, admission, BOB)
            await wait_all_tasks_blocked()
            assert bob.inside
            next(each for each in anns if each.inside).go()
            await wait_all_tasks_blocked()
            # Ann had 3 and a fourth waits: with one of 4 free she may have 2, with two free 3.
            assert sum(each.inside for each in anns) == 2
            bob.go()
            await wait_all_tasks_blocked()
            assert sum(each.inside for each in anns) == 3
            await leave_one_by_one([*anns, bob])
        assert (admission.executions.inside, admission.executions.waiting) == (0, 0)

    anyio.run(check)


def test_a_cancelled_wait_frees_its_place() -> None:
    async def check() -> None:
        admission = build(executions=1, waiting=1)
        async with anyio.create_task_group() as group:
            inside, gone = start(group, admission, ANN), start(group, admission, BOB)
            await wait_all_tasks_blocked()
            gone.scope.cancel()
            await wait_all_tasks_blocked()
            assert admission.executions.waiting == 0
            after = start(group, admission, BOB)
            await leave_one_by_one([inside, gone, after])
        assert after.refused is None
        assert admission.executions.inside == 0

    anyio.run(check)


def test_a_place_that_came_together_with_a_cancellation_is_passed_on() -> None:
    async def check() -> None:
        admission = build(executions=1)
        async with anyio.create_task_group() as group:
            first, second, third = (start(group, admission, each) for each in (ANN, BOB, EVE))
            await wait_all_tasks_blocked()
            first.go()
            second.scope.cancel()
            await leave_one_by_one([first, second, third])
        assert third.refused is None
        assert (admission.executions.inside, admission.executions.waiting) == (0, 0)

    anyio.run(check)


def test_with_free_capacity_no_other_task_runs_between() -> None:
    async def check() -> None:
        admission = build()
        others: list[str] = []

        async def other() -> None:
            others.append("ran")

        async with anyio.create_task_group() as group:
            group.start_soon(other)
            async with admission.executing(ANN), admission.creating(ANN):
                assert others == []

    anyio.run(check)


def test_no_limit_means_no_waiting() -> None:
    async def check() -> None:
        admission = build(executions=0, own_executions=0, waiting=0)
        async with contextlib.AsyncExitStack() as stack:
            for _ in range(500):
                await stack.enter_async_context(admission.executing(ANN))
            assert admission.executions.inside == 500
        assert admission.executions.inside == 0

    anyio.run(check)


def test_rates_are_counted_for_each_principal_and_say_what_is_left() -> None:
    async def check() -> None:
        admission = build(requests_per_minute=3)
        rates = [await admission.check_rate(ANN) for _ in range(3)]
        with pytest.raises(RateExceeded, match="3 requests in a minute") as caught:
            await admission.check_rate(ANN)
        other = await admission.check_rate(BOB)

        assert [rate.remaining for rate in rates if rate] == [2, 1, 0]
        assert other is not None
        assert (other.limit, other.remaining, other.window_s) == (3, 2, 60)
        assert 0 < caught.value.retry_after_s <= 20
        assert 50 < caught.value.rate.reset_s <= 60

    anyio.run(check)


def test_creates_have_a_rate_of_their_own() -> None:
    async def check() -> None:
        admission = build(creates_per_minute=1)
        async with admission.creating(ANN):
            assert await admission.check_rate(ANN) is None
        with pytest.raises(RateExceeded, match="1 creates"):
            async with admission.creating(ANN):
                pass
        assert admission.creates.inside == 0

    anyio.run(check)


def test_refusals_are_counted_with_their_reason() -> None:
    async def check() -> None:
        observer = Counters()
        admission = build(observer, requests_per_minute=1, own_executions=1, creates=1, waiting=1, wait_s=0.01)
        await admission.check_rate(ANN)
        async with admission.executing(ANN), admission.creating(BOB):
            for refused in (admission.executing(ANN), admission.creating(ANN)):
                with pytest.raises((QuotaExceeded, Overloaded)):
                    await refused.__aenter__()
        with pytest.raises(RateExceeded):
            await admission.check_rate(ANN)
        for reason in ("executions", "waited_too_long", "requests_per_minute"):
            assert observer.registry.get_sample_value("warren_rejected_total", {"reason": reason}) == 1

    anyio.run(check)


STEPS = st.lists(
    st.tuples(st.sampled_from(["come", "go", "cancel", "go and cancel"]), st.integers(0, 7)), min_size=1, max_size=40
)


@settings(max_examples=150, deadline=None)
@given(steps=STEPS, places=st.integers(1, 6), waiting=st.integers(0, 4), own=st.integers(0, 3))
def test_counts_stay_within_their_ceilings_and_no_waiter_is_forgotten(
    steps: list[tuple[str, int]], places: int, waiting: int, own: int
) -> None:
    async def check() -> None:
        admission = build(executions=places, waiting=waiting, own_executions=own)
        visitors: list[Visitor] = []
        async with anyio.create_task_group() as group:
            for action, number in steps:
                if action == "come":
                    visitors.append(start(group, admission, (ANN, BOB, EVE)[number % 3]))
                elif visitors:
                    _disturb(action, visitors, number)
                await wait_all_tasks_blocked()
                _check_counts(admission, visitors, places, waiting, own)
            await leave_one_by_one(visitors)
            assert all(each.ended for each in visitors)
        assert (admission.executions.inside, admission.executions.waiting) == (0, 0)
        assert [admission.own_executions(each.owner) for each in (ANN, BOB, EVE)] == [0, 0, 0]

    anyio.run(check)


def _disturb(action: str, visitors: list[Visitor], number: int) -> None:
    one, other = visitors[number % len(visitors)], visitors[(number + 1) % len(visitors)]
    if action in {"go", "go and cancel"}:
        one.go()
    if action in {"cancel", "go and cancel"}:
        other.scope.cancel()


def _check_counts(admission: Admission, visitors: list[Visitor], places: int, waiting: int, own: int) -> None:
    gate = admission.executions
    inside = [each for each in visitors if each.inside]
    in_line = [each for each in visitors if not each.inside and not each.ended]
    assert gate.inside == len(inside) <= places
    assert gate.waiting == len(in_line) <= waiting
    for waiter in in_line:
        held = sum(each.principal is waiter.principal for each in inside)
        assert held >= SHARE * (places - len(inside))
    for principal in (ANN, BOB, EVE):
        theirs = sum(each.principal is principal for each in (*inside, *in_line))
        assert admission.own_executions(principal.owner) == theirs
        assert not own or theirs <= own


def test_a_tenant_at_its_limit_is_refused_for_all_its_members() -> None:
    async def check() -> None:
        admission = build(own_executions=5, tenants={"acme": TenantLimits(executions=2)})
        one, two, stranger = (
            Principal(subject=name, tenant=tenant) for name, tenant in (("a", "acme"), ("b", "acme"), ("a", "south"))
        )
        async with anyio.create_task_group() as group:
            visitors = [start(group, admission, one), start(group, admission, two)]
            await wait_all_tasks_blocked()
            for _ in range(2):
                with pytest.raises(QuotaExceeded, match=r"ceiling of tenant 'acme' of executions at once, 2"):
                    async with admission.executing(one):
                        pass
            async with admission.executing(stranger):
                pass
            for visitor in visitors:
                visitor.go()
        async with admission.executing(two):
            pass
        assert admission._tenants == {}

    anyio.run(check)


def test_requests_and_creates_of_a_tenant_are_counted_together_with_its_principals_own() -> None:
    async def check() -> None:
        ceiling = TenantLimits(requests_per_minute=3, creates_per_minute=1)
        admission = build(requests_per_minute=2, tenant=ceiling)
        ann, bob = Principal(subject="ann", tenant="acme"), Principal(subject="bob", tenant="acme")
        first, second, third = [await admission.check_rate(each) for each in (ann, ann, bob)]

        assert [rate and (rate.limit, rate.remaining) for rate in (first, second, third)] == [(2, 1), (2, 0), (3, 0)]
        with pytest.raises(RateExceeded, match="more than 2 requests in a minute"):
            await admission.check_rate(ann)
        with pytest.raises(RateExceeded, match="more than 3 requests of tenant 'acme' in a minute"):
            await admission.check_rate(bob)
        assert await admission.check_rate(Principal(subject="bob", tenant="south"))
        async with admission.creating(ann):
            pass
        with pytest.raises(RateExceeded, match="more than 1 creates of tenant 'acme'"):
            async with admission.creating(bob):
                pass

    anyio.run(check)
