"""Store checks: API keys, idempotency keys and rates."""

from __future__ import annotations

import time
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import anyio

from warren.domain.errors import Conflict
from warren.domain.records import Owner, Scope
from warren.testing.checks_store_sandboxes import RACERS, outcomes
from warren.testing.store_subject import OTHER, OWNER, make_key
from warren.testing.subject import refused

if TYPE_CHECKING:
    from warren.testing.store_subject import StoreSubject


async def check_a_key_comes_back_as_it_was(subject: StoreSubject) -> None:
    """By its hash, with every field, also when it has expired or was revoked."""
    made = (
        make_key(scope=Scope.ADMIN, created_at=1.5),
        make_key(expires_at=1.0, created_at=2.5),
        make_key(revoked_at=2.0, created_at=3.5, expires_at=9e9, networks=("10.0.0.0/8", "fd00::7")),
    )
    for key in reversed(made):
        await subject.store.add_key(key)

    assert [await subject.store.key(key.hash) for key in made] == list(made)
    assert await subject.store.keys() == made
    assert await subject.store.key("unknown") is None


async def check_a_name_in_force_is_used_once(subject: StoreSubject) -> None:
    """A second key of a name is a conflict while the first is valid, and allowed once it is revoked or expired."""
    key = make_key(name="ci")
    await subject.store.add_key(key)
    await refused(Conflict, subject.store.add_key(make_key(name="ci")))
    await subject.store.revoke_key(key.id, time.time())
    await subject.store.add_key(make_key(name="ci", expires_at=time.time() - 1))
    await subject.store.add_key(make_key(name="ci"))

    assert len(await subject.store.keys()) == 3


async def check_one_of_many_gets_a_name(subject: StoreSubject) -> None:
    """Of fifty keys of a name that are added at once exactly one is kept."""
    found = await outcomes([partial(subject.store.add_key, make_key(name="race")) for _ in range(RACERS)])

    assert found.count(None) == 1
    assert len(await subject.store.keys()) == 1


async def check_an_id_or_hash_is_kept_once(subject: StoreSubject) -> None:
    """Two keys never share an id or a secret."""
    key = make_key()
    await subject.store.add_key(key)
    await refused(Conflict, subject.store.add_key(make_key(hash=key.hash)))
    await refused(Conflict, subject.store.add_key(make_key(id=key.id)))

    assert await subject.store.keys() == (key,)


async def check_a_key_is_revoked_once(subject: StoreSubject) -> None:
    """Revocation returns whether the key was valid, and the time of the first revocation stays."""
    key, expired = make_key(), make_key(expires_at=time.time() - 1)
    await subject.store.add_key(key)
    await subject.store.add_key(expired)
    now = time.time()

    assert await subject.store.revoke_key(key.id, now) is True
    assert await subject.store.revoke_key(key.id, now + 5) is False
    assert await subject.store.revoke_key(expired.id, now) is False
    assert await subject.store.revoke_key("key_unknown", now) is False
    assert await subject.store.key(key.hash) == replace(key, revoked_at=now)


async def check_an_idempotency_key_leads_to_its_first_target(subject: StoreSubject) -> None:
    """The same key and fingerprint give the first target; keys of others are their own."""
    store = subject.store

    assert await store.remember(OWNER, "k", "f", "sbx_1", ttl_s=60) == "sbx_1"
    assert await store.remember(OWNER, "k", "f", "sbx_2", ttl_s=60) == "sbx_1"
    assert await store.remember(OTHER, "k", "other", "sbx_3", ttl_s=60) == "sbx_3"
    assert await store.remember(Owner("x", OWNER.subject), "k", "f", "sbx_4", ttl_s=60) == "sbx_4"
    assert await store.remember(OWNER, "k2", "f", "sbx_5", ttl_s=60) == "sbx_5"


async def check_another_fingerprint_is_a_conflict(subject: StoreSubject) -> None:
    """A key that comes with another request is refused, and still leads to the first."""
    await subject.store.remember(OWNER, "k", "f", "sbx_1", ttl_s=60)
    await refused(Conflict, subject.store.remember(OWNER, "k", "g", "sbx_2", ttl_s=60))

    assert await subject.store.remember(OWNER, "k", "f", "sbx_3", ttl_s=60) == "sbx_1"


async def check_one_of_many_ties_an_idempotency_key(subject: StoreSubject) -> None:
    """Fifty concurrent requests all get the same target."""
    found = await outcomes(
        [partial(subject.store.remember, OWNER, "k", "f", f"sbx_{number}", ttl_s=60) for number in range(RACERS)]
    )

    assert len(found) == RACERS
    assert len(set(found)) == 1


async def check_an_idempotency_key_expires(subject: StoreSubject) -> None:
    """After its time a key is free again, for another request too."""
    await subject.store.remember(OWNER, "k", "f", "sbx_1", ttl_s=0.0)

    assert await subject.store.remember(OWNER, "k", "g", "sbx_2", ttl_s=60) == "sbx_2"


async def check_a_forgotten_idempotency_key_is_free(subject: StoreSubject) -> None:
    """A released key can be bound again; releasing an unbound key is no error."""
    await subject.store.remember(OWNER, "k", "f", "sbx_1", ttl_s=60)
    await subject.store.forget(OTHER, "k", "sbx_1")
    await subject.store.forget(OWNER, "k", "sbx_other")
    assert await subject.store.remember(OWNER, "k", "f", "sbx_3", ttl_s=60) == "sbx_1"
    await subject.store.forget(OWNER, "k", "sbx_1")
    await subject.store.forget(OWNER, "k", "sbx_1")

    assert await subject.store.remember(OWNER, "k", "g", "sbx_2", ttl_s=60) == "sbx_2"


async def check_a_bucket_gives_what_it_holds(subject: StoreSubject) -> None:
    """Allows as many as it holds at once, then none, and returns the time until the next."""
    taken = [await subject.store.take("b", capacity=3, per_s=0.01) for _ in range(5)]

    assert [each.allowed for each in taken] == [True, True, True, False, False]
    assert [each.remaining for each in taken] == [2, 1, 0, 0, 0]
    assert [each.retry_after_s == 0 for each in taken[:3]] == [True] * 3
    assert all(90 < each.retry_after_s <= 100 for each in taken[3:])
    assert (await subject.store.take("another", capacity=3, per_s=0.01)).allowed


async def check_a_bucket_gives_all_or_nothing(subject: StoreSubject) -> None:
    """A request for more than there is takes nothing."""
    take = partial(subject.store.take, "b", capacity=10, per_s=0.01)

    assert (await take(amount=6)).allowed
    assert not (await take(amount=6)).allowed
    assert (await take(amount=4)).allowed
    assert not (await take(amount=11)).allowed


async def check_a_bucket_fills_again(subject: StoreSubject) -> None:
    """After the time it names there is enough again, and never more than it holds."""
    take = partial(subject.store.take, "b", capacity=2, per_s=200.0)
    while (taken := await take(amount=2)).allowed:
        pass
    assert 0 < taken.retry_after_s <= 0.01
    await anyio.sleep(taken.retry_after_s + 0.02)

    assert (await take(amount=2)).remaining <= 1
