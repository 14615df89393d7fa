"""Answers about skills, as frozen values."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime  # noqa: TC003 - a field's type, read where the page about the library is made
from typing import TYPE_CHECKING, Any

from warren.sdk.values import TIME, TUPLE, Owner, build_one

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True, kw_only=True)
class SkillInfo:
    """A skill, as it is listed."""

    id: str
    name: str
    description: str
    source_type: str
    """imported or manual."""
    skill_metadata: Mapping[str, Any]
    package_size_bytes: int
    portal_visible: bool
    """Whether all of the tenant may see and install it."""
    portal_category: str | None
    portal_tags: tuple[str, ...] = field(metadata=TUPLE)
    owner: Owner = field(metadata=build_one(Owner))
    created_at: datetime = field(metadata=TIME)
    updated_at: datetime = field(metadata=TIME)
    skill_md_content: str | None = None
    """What it says; None in a list."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InstalledSkills:
    """The skills that are in a sandbox now, by name."""

    installed: tuple[str, ...] = field(metadata=TUPLE)
    already_installed: tuple[str, ...] = field(metadata=TUPLE)
