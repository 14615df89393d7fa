# Made from tests/e2e/sdk/_async/test_skills.py by `make sdk`: change that instead.
"""Skills and images through the client."""

from __future__ import annotations

import io
import zipfile
from typing import TYPE_CHECKING

import pytest

import warren

if TYPE_CHECKING:
    from pathlib import Path

    from warren import Client, Sandbox

HEAD = "---\nname: {name}\ndescription: Says it.\n---\n"


def pack(name: str) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("SKILL.md", HEAD.format(name=name))
        archive.writestr("say.py", "print(6 * 7)")
    return packed.getvalue()


def test_a_skill_is_kept_installed_and_deleted(client: Client, fresh: Sandbox) -> None:
    made = client.skills.upload(pack("sayer"))
    try:
        assert (made.name, made.description, made.portal_visible) == ("sayer", "Says it.", False)
        assert client.skills.package(made.id) == pack("sayer")
        assert made.id in {each.id for each in client.skills.list()}
        found = fresh.install_skills(made.id)
        assert (found.installed, found.already_installed) == (("sayer",), ())
        assert (fresh.exec("python skills/sayer/say.py")).stdout == "42\n"
        changed = client.skills.update(made.id, portal_visible=True, portal_tags=("a",))
        assert (changed.portal_visible, changed.portal_tags) == (True, ("a",))
        with pytest.raises(warren.Conflict):
            client.skills.upload(pack("sayer"))
        assert (client.skills.upload(pack("sayer"), replace=True)).id == made.id
    finally:
        client.skills.delete(made.id)
    with pytest.raises(warren.NotFound):
        client.skills.get(made.id)


def test_a_sandbox_is_made_with_a_skill(client: Client, tmp_path: Path) -> None:
    (tmp_path / "skill.md").write_text(HEAD.format(name="from-file"))
    skill = client.skills.upload(tmp_path / "skill.md")
    other = client.skills.create("written", "Says more.", "# More", skill_metadata={"a": 1})
    try:
        with client.sandbox(skill_ids=(skill.id, other.id)) as sandbox:
            assert "# More" in sandbox.files.read_text("skills/written/SKILL.md")
            assert sandbox.files.read_text("skills/from-file/SKILL.md") == HEAD.format(name="from-file")
    finally:
        for each in (skill, other):
            client.skills.delete(each.id)


def test_an_image_that_is_built_is_not_built_again(client: Client) -> None:
    image = client.build_image("python")

    assert (image.state, image.build) == ("built", None)
    assert image == client.image("python")
    with pytest.raises(warren.NotFound, match="no image"):
        client.build_image("nothing")
    with pytest.raises(warren.NotFound, match="no image"):
        client.remove_image("nothing")
