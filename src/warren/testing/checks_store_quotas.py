"""Store checks: resource use of owners, tenants and the whole service, and their quotas."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from warren.domain.lifecycle import Status
from warren.domain.records import ResourceUse
from warren.domain.values import GIB, Limits
from warren.stores.base import Ceilings, ResourceUseExceeded
from warren.testing.checks_store_sandboxes import RACERS, outcomes
from warren.testing.store_subject import OTHER, OWNER, make_sandbox
from warren.testing.subject import refused

if TYPE_CHECKING:
    from warren.testing.store_subject import StoreSubject


async def check_holding_adds_up(subject: StoreSubject) -> None:
    """Memory and GPUs count while a sandbox is active, disk while it exists, each for its owner."""
    limits = Limits(memory_bytes=GIB, disk_bytes=3 * GIB)
    gpus = ("example.com/gpu=0", "example.com/gpu=1")
    await subject.add(limits=limits, gpus=gpus)
    await subject.add(limits=limits, gpus=gpus, status=Status.STOPPED)
    await subject.add(limits=limits, status=Status.DESTROYING)
    await subject.add(limits=limits, owner=OTHER, status=Status.STARTING)

    assert await subject.store.holding(OWNER) == ResourceUse(3, 1, GIB, 9 * GIB, 2)
    assert await subject.store.holding(OTHER) == ResourceUse(1, 1, GIB, 3 * GIB)
    assert await subject.store.holding(None) == ResourceUse(4, 2, 2 * GIB, 12 * GIB, 2)
    assert await subject.store.holding(tenant=OWNER.tenant) == ResourceUse(4, 2, 2 * GIB, 12 * GIB, 2)
    assert await subject.store.holding(tenant="missing") == ResourceUse()
    assert await subject.store.holding(OWNER._replace(tenant="missing")) == ResourceUse()


async def check_each_quota_holds(subject: StoreSubject) -> None:
    """A sandbox that exceeds any part of a quota is refused and not stored; one that fills it exactly is stored."""
    limits = Limits(memory_bytes=GIB, disk_bytes=GIB)
    await subject.add(limits=limits)
    with_two = make_sandbox(limits=limits, gpus=("example.com/gpu=0", "example.com/gpu=1"))
    await refused(ResourceUseExceeded, subject.store.add(with_two, Ceilings(own=ResourceUse(gpus=1))))
    for ceiling in (ResourceUse(1), ResourceUse(0, 1), ResourceUse(0, 0, GIB), ResourceUse(0, 0, 0, GIB)):
        await refused(ResourceUseExceeded, subject.store.add(make_sandbox(limits=limits), Ceilings(own=ceiling)))
        await refused(
            ResourceUseExceeded,
            subject.store.add(make_sandbox(limits=limits, owner=OTHER), Ceilings(everybody=ceiling)),
        )
        await refused(
            ResourceUseExceeded,
            subject.store.add(make_sandbox(limits=limits), Ceilings(own=ResourceUse(), everybody=ceiling)),
        )

    assert await subject.store.holding(None) == ResourceUse(1, 1, GIB, GIB)
    exactly = ResourceUse(2, 2, 2 * GIB, 2 * GIB)
    await subject.store.add(make_sandbox(limits=limits), Ceilings(own=exactly, everybody=exactly))
    await subject.store.add(make_sandbox(limits=limits, owner=OTHER), Ceilings(own=ResourceUse(1)))


async def check_each_ceiling_of_a_tenant_holds(subject: StoreSubject) -> None:
    """All owners of a tenant together stay under it, those of other tenants do not count, and the sentence names it."""
    limits = Limits(memory_bytes=GIB, disk_bytes=GIB)
    foreign = OWNER._replace(tenant="south")
    await subject.add(limits=limits)
    await subject.add(limits=limits, owner=foreign)
    for ceiling in (ResourceUse(1), ResourceUse(0, 1), ResourceUse(0, 0, GIB), ResourceUse(0, 0, 0, GIB)):
        error = await refused(
            ResourceUseExceeded, subject.store.add(make_sandbox(limits=limits, owner=OTHER), Ceilings(tenant=ceiling))
        )
        assert repr(OWNER.tenant) in str(error)

    exactly = ResourceUse(2, 2, 2 * GIB, 2 * GIB)
    await subject.store.add(make_sandbox(limits=limits, owner=OTHER), Ceilings(own=ResourceUse(1), tenant=exactly))
    stopped = make_sandbox(limits=limits, owner=foreign, status=Status.STOPPED)
    await subject.store.add(stopped, Ceilings(tenant=ResourceUse(active=1)))
    starting = replace(stopped, status=Status.STARTING)
    await refused(
        ResourceUseExceeded,
        subject.store.swap(starting, was=Status.STOPPED, ceilings=Ceilings(tenant=ResourceUse(active=1))),
    )

    assert await subject.store.get(stopped.id) == stopped
    assert await subject.store.swap(starting, was=Status.STOPPED, ceilings=Ceilings(tenant=ResourceUse(active=2)))


async def check_a_refusal_says_whose_quota_it_is(subject: StoreSubject) -> None:
    """Owner, tenant or whole service: the error names the first that is used up."""
    one = ResourceUse(1)
    await subject.add()
    for ceilings, whose in (
        (Ceilings(one, one, one), OWNER),
        (Ceilings(ResourceUse(2), one, one), OWNER.tenant),
        (Ceilings(ResourceUse(2), ResourceUse(2), one), None),
    ):
        try:
            await subject.store.add(make_sandbox(), ceilings)
        except ResourceUseExceeded as error:
            assert error.whose == whose
        else:
            raise AssertionError("it was not refused")


async def check_the_ceiling_of_a_tenant_holds_in_a_race(subject: StoreSubject) -> None:
    """Of fifty at once, of two owners, exactly as many are kept as their tenant has room for."""
    attempts = [
        partial(subject.store.add, make_sandbox(owner=owner), Ceilings(tenant=ResourceUse(active=10)))
        for _ in range(RACERS // 2)
        for owner in (OWNER, OTHER)
    ]
    found = await outcomes(list(attempts))

    assert found.count(None) == 10
    assert (await subject.store.holding(tenant=OWNER.tenant)).active == 10


async def check_a_quota_holds_in_a_race(subject: StoreSubject) -> None:
    """Of fifty at once exactly as many are kept as the quota has room for."""
    attempts = [partial(subject.store.add, make_sandbox(), Ceilings(own=ResourceUse(active=10))) for _ in range(RACERS)]
    found = await outcomes(list(attempts))

    assert found.count(None) == 10
    assert found.count(ResourceUseExceeded) == RACERS - 10
    assert (await subject.store.holding(OWNER)).active == 10


async def check_a_swap_into_activity_is_held_to_the_quota(subject: StoreSubject) -> None:
    """Starting a stopped sandbox counts, refused it stays as it was, and its own share is not counted twice."""
    await subject.add()
    stopped = await subject.add(status=Status.STOPPED)
    starting = replace(stopped, status=Status.STARTING)
    await refused(
        ResourceUseExceeded,
        subject.store.swap(starting, was=Status.STOPPED, ceilings=Ceilings(own=ResourceUse(active=1))),
    )
    await refused(
        ResourceUseExceeded,
        subject.store.swap(starting, was=Status.STOPPED, ceilings=Ceilings(everybody=ResourceUse(active=1))),
    )

    assert await subject.store.get(stopped.id) == stopped
    assert await subject.store.swap(
        starting, was=Status.STOPPED, ceilings=Ceilings(own=ResourceUse(active=2, sandboxes=2))
    )
