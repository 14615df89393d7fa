"""Skills and images through the client."""

from __future__ import annotations

import io
import zipfile
from typing import TYPE_CHECKING

import pytest

import warren

if TYPE_CHECKING:
    from pathlib import Path

    from warren import AsyncClient, AsyncSandbox

pytestmark = pytest.mark.anyio

HEAD = "---\nname: {name}\ndescription: Says it.\n---\n"


def pack(name: str) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("SKILL.md", HEAD.format(name=name))
        archive.writestr("say.py", "print(6 * 7)")
    return packed.getvalue()


async def test_a_skill_is_kept_installed_and_deleted(client: AsyncClient, fresh: AsyncSandbox) -> None:
    made = await client.skills.upload(pack("sayer"))
    try:
        assert (made.name, made.description, made.portal_visible) == ("sayer", "Says it.", False)
        assert await client.skills.package(made.id) == pack("sayer")
        assert made.id in {each.id for each in await client.skills.list()}
        found = await fresh.install_skills(made.id)
        assert (found.installed, found.already_installed) == (("sayer",), ())
        assert (await fresh.exec("python skills/sayer/say.py")).stdout == "42\n"
        changed = await client.skills.update(made.id, portal_visible=True, portal_tags=("a",))
        assert (changed.portal_visible, changed.portal_tags) == (True, ("a",))
        with pytest.raises(warren.Conflict):
            await client.skills.upload(pack("sayer"))
        assert (await client.skills.upload(pack("sayer"), replace=True)).id == made.id
    finally:
        await client.skills.delete(made.id)
    with pytest.raises(warren.NotFound):
        await client.skills.get(made.id)


async def test_a_sandbox_is_made_with_a_skill(client: AsyncClient, tmp_path: Path) -> None:
    (tmp_path / "skill.md").write_text(HEAD.format(name="from-file"))
    skill = await client.skills.upload(tmp_path / "skill.md")
    other = await client.skills.create("written", "Says more.", "# More", skill_metadata={"a": 1})
    try:
        async with client.sandbox(skill_ids=(skill.id, other.id)) as sandbox:
            assert "# More" in await sandbox.files.read_text("skills/written/SKILL.md")
            assert await sandbox.files.read_text("skills/from-file/SKILL.md") == HEAD.format(name="from-file")
    finally:
        for each in (skill, other):
            await client.skills.delete(each.id)


async def test_an_image_that_is_built_is_not_built_again(client: AsyncClient) -> None:
    image = await client.build_image("python")

    assert (image.state, image.build) == ("built", None)
    assert image == await client.image("python")
    with pytest.raises(warren.NotFound, match="no image"):
        await client.build_image("nothing")
    with pytest.raises(warren.NotFound, match="no image"):
        await client.remove_image("nothing")
