"""Answers about the service itself, its images and its skills, as frozen values."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime  # noqa: TC003 - a field's type, read where the page about the library is made
from typing import TYPE_CHECKING, Any

from warren.sdk.values import TIME, TUPLE, Owner, build_one

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """How a service is."""

    status: str
    """healthy or degraded."""
    version: str
    reasons: tuple[str, ...] = field(metadata=TUPLE)

    @property
    def is_healthy(self) -> bool:
        """Whether it can do its work."""
        return self.status == "healthy"


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditRow:
    """A row of the audit record."""

    seq: int
    at: datetime = field(metadata=TIME)
    action: str
    outcome: str
    tenant: str
    subject: str
    key_id: str
    request_id: str
    address: str
    sandbox_id: str
    execution_id: str
    details: Mapping[str, Any]
    previous: str
    hash: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Build:
    """How far the last build of an image is, or how it ended."""

    phase: str
    """waiting, system, resolving, downloading, installing, node, fonts, compiling, finishing or done."""
    detail: str
    done: int
    total: int
    """0 when it is not known how much there is to do."""
    started_at: datetime = field(metadata=TIME)
    finished_at: datetime | None = field(metadata=TIME)
    error: str | None
    """Why it failed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """An image that sandboxes are made from."""

    name: str
    description: str
    aliases: tuple[str, ...] = field(metadata=TUPLE)
    packages: tuple[str, ...] = field(metadata=TUPLE)
    digest: str
    state: str
    """built, building, not_built, or stale: only an earlier build is there."""
    is_default: bool
    size_bytes: int
    built_at: datetime | None = field(metadata=TIME)
    preload: tuple[str, ...] = field(metadata=TUPLE)
    stale: tuple[str, ...] = field(metadata=TUPLE)
    """Digests of earlier builds that are still there."""
    build: Build | None = field(metadata=build_one(Build))


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
