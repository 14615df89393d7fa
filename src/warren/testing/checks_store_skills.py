"""Store checks: skills, their names and visibility."""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import TYPE_CHECKING

from warren.domain.errors import Conflict, QuotaExceeded
from warren.domain.records import Owner, SkillQuery
from warren.testing.checks_store_sandboxes import RACERS, outcomes
from warren.testing.store_subject import OTHER, OWNER, make_skill
from warren.testing.subject import refused

if TYPE_CHECKING:
    from warren.testing.store_subject import StoreSubject

_STRANGER = Owner("elsewhere", "ann")


async def check_a_skill_comes_back_as_it_was(subject: StoreSubject) -> None:
    """Found with every field, by id and by name; also after the store is opened again."""
    full, bare = make_skill(is_shared=True), make_skill(category=None, tags=(), metadata={}, server_id=None, folder="")
    for skill in (full, bare):
        await subject.store.add_skill(skill)
    async with subject.reopened() as later:
        for store in (subject.store, later):
            assert [await store.skill(skill.id) for skill in (full, bare)] == [full, bare]
            assert await store.find_skill(OWNER, full.name) == full
            assert await store.find_skill(OTHER, full.name) is None
            assert await store.skill_blobs() == {full.blob, bare.blob}
    assert await subject.store.skill("unknown") is None


async def check_a_skill_has_an_id_and_a_name_of_its_own(subject: StoreSubject) -> None:
    """A second of an id, or of one owner's name, is a conflict; another owner may have the name too."""
    skill = make_skill()
    await subject.store.add_skill(skill)
    await refused(Conflict, subject.store.add_skill(make_skill(id=skill.id)))
    await refused(Conflict, subject.store.add_skill(make_skill(name=skill.name)))
    await subject.store.add_skill(make_skill(name=skill.name, owner=OTHER))

    assert await subject.store.skill(skill.id) == skill


async def check_skills_are_listed_by_name_for_those_who_may_see_them(subject: StoreSubject) -> None:
    """An owner's skills and the shared ones of the tenant, a page at a time; or those of all tenants."""
    store = subject.store
    own, shared = make_skill(name="b"), make_skill(name="a", owner=OTHER, is_shared=True)
    hidden, foreign = make_skill(name="c", owner=OTHER), make_skill(name="d", owner=_STRANGER, is_shared=True)
    for skill in (own, shared, hidden, foreign):
        await store.add_skill(skill)

    assert (await store.skills(SkillQuery(owner=OWNER))).items == (shared, own)
    assert (await store.skills(SkillQuery(owner=OTHER))).items == (shared, hidden)
    assert (await store.skills(SkillQuery(owner=None))).items == (shared, own, hidden, foreign)
    page = await store.skills(SkillQuery(owner=OWNER, offset=1, limit=1))
    assert (page.items, page.total, page.offset, page.limit) == ((own,), 2, 1, 1)


async def check_a_skill_is_replaced_if_its_package_is_still_the_same(subject: StoreSubject) -> None:
    """A swap based on an outdated package or description changes nothing, and returns False."""
    store = subject.store
    skill, other = make_skill(), make_skill()
    for each in (skill, other):
        await store.add_skill(each)
    newer = dataclasses.replace(skill, blob="new", description="other", is_shared=True, tags=(), changed_at=9.0)

    assert await store.swap_skill(newer, was=skill) is True
    assert await store.swap_skill(dataclasses.replace(skill, blob="late"), was=skill) is False
    earlier = dataclasses.replace(newer, changed_at=8.0)
    assert await store.swap_skill(dataclasses.replace(newer, tags=("late",)), was=earlier) is False
    assert await store.skill(skill.id) == newer
    await refused(Conflict, store.swap_skill(dataclasses.replace(newer, name=other.name), was=newer))
    assert await store.skill(skill.id) == newer


async def check_a_skill_is_removed_once(subject: StoreSubject) -> None:
    """Removal returns whether it existed; then its name is free."""
    skill = make_skill()
    await subject.store.add_skill(skill)

    assert await subject.store.remove_skill(skill.id) is True
    assert await subject.store.remove_skill(skill.id) is False
    assert await subject.store.skill_blobs() == frozenset()
    await subject.store.add_skill(make_skill(name=skill.name))


async def check_skills_weigh_no_more_than_they_may(subject: StoreSubject) -> None:
    """A new or grown skill above the bound is refused; one that does not grow stays, and other owners have room."""
    store = subject.store
    skill = make_skill(size=60)
    await store.add_skill(skill, most_bytes=100)
    await refused(QuotaExceeded, store.add_skill(make_skill(size=41), most_bytes=100))
    await store.add_skill(make_skill(size=40), most_bytes=100)
    await store.add_skill(make_skill(size=100, owner=OTHER), most_bytes=100)

    await refused(QuotaExceeded, store.swap_skill(dataclasses.replace(skill, size=61), was=skill, most_bytes=100))
    assert await store.swap_skill(dataclasses.replace(skill, size=60, description="x"), was=skill, most_bytes=50)


async def check_of_many_skills_at_once_as_many_are_kept_as_one_may_have(subject: StoreSubject) -> None:
    """Of fifty concurrent skills with room for three, three are stored; another owner has separate room."""
    found = await outcomes([partial(subject.store.add_skill, make_skill(), most=3) for _ in range(RACERS)])

    assert found.count(None) == 3
    await refused(QuotaExceeded, subject.store.add_skill(make_skill(), most=3))
    await subject.store.add_skill(make_skill(owner=OTHER), most=3)
    await subject.store.add_skill(make_skill(), most=0)
