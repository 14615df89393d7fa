"""Store checks: egress policies of sandboxes, their grants, and their secrets."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from warren.domain.egress import Brokered, Egress, EgressMode, EgressRule, Grant
from warren.domain.lifecycle import Status

if TYPE_CHECKING:
    from warren.testing.store_subject import StoreSubject

_RULES = (
    EgressRule(host="*.example.org", ports=(443,)),
    EgressRule(host="10.0.0.0/8", ports=(80, 5432), methods=("GET", "POST")),
)


def _grant(sandbox_id: str, grant_id: str, until: float = 2e9) -> Grant:
    rule = EgressRule(host="api.example.org", ports=(443,), until=until)
    return Grant(id=grant_id, sandbox_id=sandbox_id, rule=rule, created_at=1.5)


def _secret(sandbox_id: str, name: str = "TOKEN") -> Brokered:
    return Brokered(
        sandbox_id=sandbox_id,
        name=name,
        placeholder="wsec_1",
        hosts=("api.example.org", "b.example.org"),
        value="s3cret-\udcff-\u00fc",
        created_at=2.5,
    )


async def check_the_egress_of_a_sandbox_comes_back_and_can_be_changed(subject: StoreSubject) -> None:
    """Stored with mode and rules; a sandbox without a policy reaches nothing."""
    plain, open_ = await subject.add(), await subject.add(egress=Egress(mode=EgressMode.OPEN, rules=_RULES))
    changed = replace(open_, egress=Egress(mode=EgressMode.RULES, rules=_RULES[:1]))
    was_changed = await subject.store.swap(changed, was=Status.RUNNING)

    assert was_changed
    assert (await subject.get(open_.id)).egress == changed.egress
    assert (await subject.get(plain.id)).egress == Egress()


async def check_grants_and_secrets_come_back_as_they_were(subject: StoreSubject) -> None:
    """Stored with every field, also after the store is opened again; the same name is replaced."""
    sandbox = await subject.add()
    first, second = _grant(sandbox.id, "grt_a"), _grant(sandbox.id, "grt_b", until=5.0)
    for grant in (first, second):
        await subject.store.keep_grant(grant)
    last = replace(_secret(sandbox.id), value="another", hosts=())
    for secret in (_secret(sandbox.id), _secret(sandbox.id, "OTHER"), last):
        await subject.store.keep_secret(secret)
    async with subject.reopened() as restarted:
        grants, secrets = await restarted.grants(), await restarted.secrets()

    assert grants == (first, second)
    assert secrets == (_secret(sandbox.id, "OTHER"), last)


async def check_grants_and_secrets_are_removed_once(subject: StoreSubject) -> None:
    """Only the named one is removed; a second removal returns that there is none."""
    sandbox = await subject.add()
    await subject.store.keep_grant(_grant(sandbox.id, "grt_a"))
    await subject.store.keep_grant(_grant(sandbox.id, "grt_b"))
    await subject.store.keep_secret(_secret(sandbox.id))
    await subject.store.keep_secret(_secret(sandbox.id, "OTHER"))
    said = [await subject.store.remove_grant("grt_a"), await subject.store.remove_secret(sandbox.id, "TOKEN")]
    again = [await subject.store.remove_grant("grt_a"), await subject.store.remove_secret(sandbox.id, "TOKEN")]

    assert said == [True, True]
    assert again == [False, False]
    assert await subject.store.grants() == (_grant(sandbox.id, "grt_b"),)
    assert await subject.store.secrets() == (_secret(sandbox.id, "OTHER"),)


async def check_grants_and_secrets_go_with_their_sandbox(subject: StoreSubject) -> None:
    """No secret outlives its sandbox, and none is stored for a removed one."""
    sandbox = await subject.add()
    for _ in range(2):
        await subject.store.keep_grant(_grant(sandbox.id, "grt_a"))
        await subject.store.keep_secret(_secret(sandbox.id))
        await subject.store.remove(sandbox.id)

    assert await subject.store.grants() == ()
    assert await subject.store.secrets() == ()


async def check_secrets_do_not_say_their_value(subject: StoreSubject) -> None:
    """Its repr, which may be logged by mistake, does not have the secret."""
    sandbox = await subject.add()
    await subject.store.keep_secret(_secret(sandbox.id))
    (kept,) = await subject.store.secrets()

    assert kept.value.startswith("s3cret")
    assert "s3cret" not in repr(kept)
