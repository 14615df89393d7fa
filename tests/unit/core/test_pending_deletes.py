"""Deletions in progress: a create over quota waits for them, and holds no place meanwhile."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from unit.core.estate import ANN, BOB, EPHEMERAL, wait_until
from warren.core.executions.executions import NewExecution
from warren.core.executions.oneshot import OneShot
from warren.core.policy.policy import TenantLimits
from warren.domain.errors import QuotaExceeded
from warren.domain.records import Caller, Principal, ResourceUse
from warren.domain.values import ExecKind
from warren.stores.base import NO_CEILINGS, Ceilings
from warren.stores.sqlite.store import SqliteStore

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator
    from pathlib import Path

    from unit.core.workshop import Tell, Workshop
    from warren.domain.records import Sandbox

ONE = ResourceUse(sandboxes=1)
SHOT = OneShot(request=NewExecution(kind=ExecKind.SCRIPT, code="print(2)"))
STRANGER = Caller(principal=Principal(subject="ann", tenant="south"), request_id="req_5")


class RefusingStore(SqliteStore):
    """A store that tells how often a quota has refused a sandbox, and lets others act before anybody hears of it."""

    refusals = 0
    meanwhile: Callable[[], Awaitable[object]] | None = None

    async def add(self, sandbox: Sandbox, ceilings: Ceilings = NO_CEILINGS) -> None:
        try:
            await super().add(sandbox, ceilings)
        except QuotaExceeded:
            self.refusals += 1
            if self.meanwhile is not None:
                await self.meanwhile()
            raise


@pytest.fixture
def store(tmp_path: Path) -> RefusingStore:
    return RefusingStore(str(tmp_path))


@contextlib.contextmanager
def held_back(shop: Workshop) -> Iterator[anyio.Event]:
    """Have no sandbox removed before the event is set, and no wait time out."""
    may_go, end = anyio.Event(), shop.transitions.before_end

    async def end_late(sandbox_id: str) -> None:
        await may_go.wait()
        await end(sandbox_id)

    shop.transitions.before_end = end_late
    shop.transitions.pending_deletes.patience_s = 60
    try:
        yield may_go
    finally:
        may_go.set()


@pytest.mark.parametrize(
    ("first", "quota"),
    [
        pytest.param(ANN, {"own": ONE}, id="her own quota"),
        pytest.param(BOB, {"tenant": TenantLimits(holding=ONE)}, id="the tenant's"),
        pytest.param(STRANGER, {"everybody": ONE}, id="everybody's"),
    ],
)
def test_the_next_gets_the_place_of_one_that_counts_for_the_quota_which_refused_it(
    tell: Tell, store: RefusingStore, first: Caller, quota: dict[str, Any]
) -> None:
    async def story(shop: Workshop) -> None:
        with held_back(shop) as may_go:
            await shop.oneshots.run(first, SHOT)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(shop.oneshots.run, ANN, SHOT)
                await wait_until(lambda: store.refusals)
                may_go.set()
        assert await shop.audited("sandbox.create") == ["ok"] * 2

    tell(story, records=store, **quota)


def test_a_waiter_takes_no_place_from_others_and_is_counted_once(tell: Tell, store: RefusingStore) -> None:
    async def story(shop: Workshop) -> None:
        with held_back(shop) as may_go:
            await shop.oneshots.run(ANN, SHOT)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(shop.oneshots.run, ANN, SHOT)
                await wait_until(lambda: store.refusals)
                await shop.create(BOB, storage=EPHEMERAL)
                may_go.set()
        assert await shop.audited("sandbox.create") == ["ok"] * 3

    tell(story, records=store, own=ONE, creates=1, creates_per_minute=2)


@pytest.mark.parametrize(
    ("other", "quota"),
    [
        pytest.param(BOB, {"own": ONE}, id="another owner's"),
        pytest.param(STRANGER, {"tenant": TenantLimits(holding=ONE)}, id="another tenant's"),
    ],
)
def test_no_create_waits_for_a_delete_of_another_quota(
    tell: Tell, store: RefusingStore, other: Caller, quota: dict[str, Any]
) -> None:
    async def story(shop: Workshop) -> None:
        await shop.create(ANN, storage=EPHEMERAL)
        with held_back(shop):
            await shop.oneshots.run(other, SHOT)
            with pytest.raises(QuotaExceeded):
                await shop.create(ANN, storage=EPHEMERAL)
        assert store.refusals == 1, "a create that has waited asks again"

    tell(story, records=store, **quota)


def test_one_that_has_gone_before_the_refusal_is_heard_of_is_as_good(tell: Tell, store: RefusingStore) -> None:
    async def story(shop: Workshop) -> None:
        with held_back(shop) as may_go:
            await shop.oneshots.run(ANN, SHOT)

            async def let_go() -> None:
                may_go.set()
                await wait_until(lambda: not shop.transitions.pending_deletes.look())

            store.meanwhile = let_go
            await shop.oneshots.run(ANN, SHOT)
        assert store.refusals == 1

    tell(story, records=store, own=ONE)


def test_patience_ends_and_then_the_quota_is_used_up(tell: Tell, store: RefusingStore) -> None:
    async def story(shop: Workshop) -> None:
        with held_back(shop):
            await shop.oneshots.run(ANN, SHOT)
            shop.transitions.pending_deletes.patience_s = 0.01
            with pytest.raises(QuotaExceeded, match="your quota of 1 sandboxes is used up"):
                await shop.oneshots.run(ANN, SHOT)
        assert store.refusals == 2

    tell(story, records=store, own=ONE)
