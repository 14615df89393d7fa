"""Skill registry: no package without a skill, no update lost to a race, no leftovers after a crash."""

from __future__ import annotations

import contextlib
import os
from functools import partial
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from unit.core.estate import ADMIN, ANN, BOB, READER
from unit.core.meddling import Meddled, MeddledStore
from warren.blobs.filesystem import Blobs
from warren.core.audit.log import Audit
from warren.core.policy.policy import Policy
from warren.core.skills.package import pack_text
from warren.core.skills.registry import SkillChanges, Skills
from warren.domain.errors import Conflict, Error, Forbidden, NotFound, QuotaExceeded

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from pathlib import Path

    from warren.blobs.filesystem import Reading
    from warren.core.skills.package import Package
    from warren.domain.records import Skill


def package(name: str = "one", text: str = "") -> Package:
    return pack_text(f"---\nname: {name}\ndescription: Says.\n---\n{text}")


class SkillsStore(MeddledStore):
    """A store that lets another caller act before a skill is kept or replaced."""

    before_add: Callable[[], Awaitable[Any]] | None = None

    async def add_skill(self, skill: Skill, *, most: int = 0, most_bytes: int = 0) -> None:
        before_add, self.before_add = self.before_add, None
        if before_add is not None:
            await before_add()
        await super().add_skill(skill, most=most, most_bytes=most_bytes)

    async def swap_skill(self, skill: Skill, *, was: Skill, most_bytes: int = 0) -> bool:
        await self.let_others_act()
        return await super().swap_skill(skill, was=was, most_bytes=most_bytes)


class MeddledBlobs(Meddled, Blobs):
    """Packages that another caller replaces before they are read."""

    @contextlib.asynccontextmanager
    async def read(self, name: str) -> AsyncIterator[Reading]:
        await self.let_others_act()
        async with super().read(name) as content:
            yield content


class Registry:
    def __init__(self, folder: Path, **policy: Any) -> None:
        self.folder = folder / "blobs"
        self.store = SkillsStore(folder)
        self.audit = Audit(self.store, Policy())
        self.blobs = MeddledBlobs(str(self.folder))
        self.skills = Skills(self.store, self.blobs, self.audit, Policy(**policy))

    async def add(self, name: str = "one", **options: Any) -> Skill:
        return await self.skills.add(ANN, package(name, options.pop("text", "")), source="imported", **options)

    def on_disk(self) -> set[str]:
        return set(os.listdir(self.folder)) if self.folder.exists() else set()


@pytest.fixture
def tell(tmp_path: Path) -> Callable[..., None]:
    def told(story: Callable[[Registry], Awaitable[None]], **policy: Any) -> None:
        async def go() -> None:
            registry = Registry(tmp_path, **policy)
            await registry.store.open()
            try:
                await story(registry)
                # Whatever was done: no skill without its package, no package without its skill.
                assert registry.on_disk() == await registry.store.skill_blobs()
                await registry.audit.close()
            finally:
                await registry.store.close()

        anyio.run(go)

    return told


def test_what_is_refused_leaves_no_package(tell: Callable[..., None]) -> None:
    async def story(registry: Registry) -> None:
        skill = await registry.add()
        with pytest.raises(Conflict, match="already"):
            await registry.add()
        await registry.add("two")
        with pytest.raises(QuotaExceeded, match="may have 2"):
            await registry.add("three")
        with pytest.raises(Forbidden):
            await registry.skills.add(READER, package("four"), source="manual")
        with pytest.raises(Conflict, match="already"):
            await registry.skills.update(ANN, skill.id, SkillChanges(name="two"))
        assert len(registry.on_disk()) == 2

    tell(story, own_skills=2)


def test_packages_that_weigh_too_much_together_are_refused_new_or_grown(tell: Callable[..., None]) -> None:
    async def story(registry: Registry) -> None:
        await registry.add(text="x")
        with pytest.raises(QuotaExceeded, match="may have 2000"):
            await registry.add("two", text=os.urandom(2000).hex())
        with pytest.raises(QuotaExceeded, match="may have 2000"):
            await registry.add(text=os.urandom(2000).hex(), replace=True)
        await registry.add(text="y", replace=True)
        assert len(registry.on_disk()) == 1

    tell(story, own_skill_bytes=2000)


def test_of_many_who_replace_one_at_once_the_package_of_one_is_there(tell: Callable[..., None]) -> None:
    async def story(registry: Registry) -> None:
        skill = await registry.add()
        refused: list[Error] = []

        async def replace(number: int) -> None:
            try:
                await registry.add(text=f"{number}", replace=True)
            except Conflict as error:
                refused.append(error)

        async with anyio.create_task_group() as tasks:
            for number in range(10):
                tasks.start_soon(replace, number)
        assert len(refused) < 10
        assert len(registry.on_disk()) == 1
        now = await registry.skills.get(ANN, skill.id)
        assert (now.created_at, now.blob != skill.blob) == (skill.created_at, True)

    tell(story)


def test_what_a_crash_left_is_swept(tell: Callable[..., None]) -> None:
    async def story(registry: Registry) -> None:
        await registry.add()
        (registry.folder / ("0" * 32)).write_bytes(b"half")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(registry.skills.run)
            with anyio.fail_after(30):
                while len(registry.on_disk()) > 1:  # noqa: ASYNC110 - nothing tells when a file is gone
                    await anyio.sleep(0.01)
            tasks.cancel_scope.cancel()

    tell(story)


def test_a_skill_replaced_during_a_read_is_read_to_its_end(tell: Callable[..., None]) -> None:
    async def story(registry: Registry) -> None:
        skill = await registry.add(text="old")
        async with registry.skills.read(skill) as content:
            await registry.add(text="new", replace=True)
            assert b"".join([piece async for piece in content]) == package(text="old").content
        with pytest.raises(Conflict, match="try again"):
            await registry.skills.get_text(skill)

    tell(story)


def test_whose_a_skill_is(tell: Callable[..., None]) -> None:
    async def story(registry: Registry) -> None:
        skills, skill = registry.skills, await registry.add()
        for ask in (skills.get, skills.get_usable, skills.delete):
            with pytest.raises(NotFound):
                await ask(BOB, skill.id)
        assert await skills.get(ADMIN, skill.id) == skill
        with pytest.raises(Forbidden, match="not use it"):
            await skills.get_usable(ADMIN, skill.id)
        await skills.update(ANN, skill.id, SkillChanges(is_shared=True))
        assert (await skills.get_usable(BOB, skill.id)).name == "one"
        for change in (partial(skills.delete, BOB), partial(skills.update, BOB, changes=SkillChanges(category="x"))):
            with pytest.raises(Forbidden, match="another owner"):
                await change(skill_id=skill.id)
        await skills.delete(ADMIN, skill.id)

    tell(story)


@pytest.mark.parametrize(
    "change", [SkillChanges(tags=("a",)), SkillChanges(text="---\nname: one\ndescription: Other.\n---\n")]
)
def test_of_two_changes_at_once_the_second_is_told_and_neither_is_lost(
    tell: Callable[..., None], change: SkillChanges
) -> None:
    async def story(registry: Registry) -> None:
        skills, skill = registry.skills, await registry.add()
        registry.store.meanwhile = partial(skills.update, ANN, skill.id, SkillChanges(metadata={"by": "other"}))
        with pytest.raises(Conflict, match="meanwhile"):
            await skills.update(ANN, skill.id, change)
        assert (await skills.get(ANN, skill.id)).metadata == {"by": "other"}

        changed = await skills.update(ANN, skill.id, change)
        assert changed == await skills.get(ANN, skill.id)
        assert changed.metadata == {"by": "other"}
        assert changed.tags == ("a",) or changed.description == "Other."

    tell(story)


def test_of_two_who_upload_a_skill_to_replace_any_the_second_replaces_the_first(tell: Callable[..., None]) -> None:
    async def story(registry: Registry) -> None:
        registry.store.before_add = partial(registry.add, text="first", replace=True)
        skill = await registry.add(text="second", replace=True)
        assert (await registry.skills.list(ANN)).items == (skill,)
        assert "second" in await registry.skills.get_text(skill)
        with pytest.raises(Conflict, match="already"):
            await registry.add(text="third")

    tell(story)


def test_who_looks_at_a_skill_while_it_is_replaced_or_deleted_sees_it_after_that(tell: Callable[..., None]) -> None:
    async def story(registry: Registry) -> None:
        skill = await registry.add(text="old")
        registry.blobs.meanwhile = partial(registry.add, text="new", replace=True)
        seen, text = await registry.skills.get_with_text(ANN, skill.id)
        assert (seen.id, text.endswith("new")) == (skill.id, True)
        assert seen == await registry.skills.get(ANN, skill.id)
        registry.blobs.meanwhile = partial(registry.skills.delete, ANN, skill.id)
        with pytest.raises(NotFound):
            await registry.skills.get_with_text(ANN, skill.id)

    tell(story)
