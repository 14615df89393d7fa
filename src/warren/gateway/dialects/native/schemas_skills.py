"""Native API, schemas: skills."""

from __future__ import annotations

import json
import re
from typing import Annotated, Any

from pydantic import AfterValidator, Field, JsonValue

from warren.core.skills.package import MAX_DESCRIPTION, MAX_NAME, MAX_TEXT, NAME
from warren.domain.values import KIB
from warren.gateway.api.bodies import matching
from warren.gateway.dialects.native.answers import Shown, Time
from warren.gateway.dialects.native.schemas import Body, Paging, Query, SkillIds
from warren.gateway.dialects.native.schemas_answers import OwnerShown

SKILL_ID = re.compile(r"skl_[a-z0-9]{8,40}")

_METADATA_BYTES = 32 * KIB


def _check_metadata(values: dict[str, JsonValue]) -> dict[str, JsonValue]:
    """Refuse what would make lists of skills large."""
    if len(json.dumps(values)) > _METADATA_BYTES:
        raise ValueError(f"may have {_METADATA_BYTES} bytes as JSON")
    return values


SkillName = Annotated[
    str,
    matching(
        f"^{NAME.pattern}$",
        "have 1 to 64 lower-case letters and digits, with single hyphens between",
        max_length=MAX_NAME,
    ),
]
Description = Annotated[str, matching(r"^[^\x00]+$", "say something, and hold no NUL", max_length=MAX_DESCRIPTION)]
SkillText = Annotated[str, matching(r"^[^\x00]*$", "hold no NUL", max_length=MAX_TEXT)]
SkillMetadata = Annotated[dict[str, JsonValue], Field(max_length=64), AfterValidator(_check_metadata)]
Label = Annotated[str, matching(r"^[^\x00]{1,64}$", "have 1 to 64 characters, and no NUL")]
Labels = Annotated[list[Label], Field(max_length=64)]


class CreateSkill(Body):
    """A skill that is one text."""

    name: SkillName = Field(description="Its name: the folder that it has in a sandbox.")
    description: Description = Field(description="What it is for, for a model that chooses among skills.")
    skill_md_content: SkillText = Field(
        description="Its SKILL.md. Where that has no head with name and description, it gets one."
    )
    mcp_server_id: Label | None = Field(default=None, description="Kept and shown again; it means nothing here.")
    skill_metadata: SkillMetadata = Field(default_factory=dict, description="Your own values.")


class UploadSkill(Query):
    """What to do with an upload."""

    replace: bool = Field(
        default=False, description="Let it take the place of your skill of that name, if there is one."
    )


class ListSkills(Paging):
    """Which skills to list, by name."""

    everybody: bool = Field(default=False, description="Other people's too; for admins.")


class UpdateSkill(Body):
    """What to change. What is absent or null stays."""

    name: SkillName | None = Field(default=None, description="Another name.")
    description: Description | None = Field(default=None, description="What it is for.")
    skill_md_content: SkillText | None = Field(
        default=None, description="Another text. Only where the skill is nothing but its SKILL.md."
    )
    skill_metadata: SkillMetadata | None = Field(default=None, description="Replaces all of your own values.")
    portal_visible: bool | None = Field(
        default=None, description="Share it: all of your tenant may then see and install it."
    )
    portal_category: Label | None = Field(default=None, description="Where a list of skills may show it.")
    portal_tags: Labels | None = Field(default=None, description="Replaces all labels.")


class InstallSkills(Body):
    """Skills to put into a sandbox."""

    skill_ids: SkillIds = Field(description="Their ids.")


class Installed(Shown):
    """What became of the skills, by name."""

    installed: list[str] = Field(description="They are in `/workspace/skills/<name>` now.")
    already_installed: list[str] = Field(description="They were there before, and are the same.")


class SkillShown(Shown):
    """A skill."""

    id: str = Field(pattern=r"^skl_[a-z0-9]{8,40}$")
    name: str
    description: str
    source_type: str = Field(description="`imported`: came as a package. `manual`: was written as a text.")
    source_url: str | None
    mcp_server_id: str | None
    mcp_server_name: str | None
    skill_metadata: dict[str, Any]
    package_size_bytes: int
    portal_visible: bool = Field(description="Whether all of the tenant may see and install it.")
    portal_category: str | None
    portal_tags: list[str]
    owner: OwnerShown
    created_at: Time
    updated_at: Time


class SkillDetails(SkillShown):
    """A skill, and what it says."""

    skill_md_content: str
