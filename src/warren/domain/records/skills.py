"""Skills as they are kept."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from warren.domain.records.principals import Owner


@dataclass(frozen=True, slots=True, kw_only=True)
class Skill:
    """A package of instructions and files that can be put into sandboxes, until its owner deletes it."""

    id: str
    owner: Owner
    name: str
    """Of the skills of one owner, at most one has it."""
    description: str
    source: str
    """`imported` came as a package, `manual` was written as a text."""
    is_shared: bool = False
    """Whether all of its tenant may see it and use it."""
    category: str | None = None
    tags: tuple[str, ...] = ()
    metadata: Mapping[str, object] = field(default_factory=dict)
    """JSON, the owner's own."""
    server_id: str | None = None
    folder: str = ""
    """Where in the package it is."""
    blob: str
    """The name of the package among the blobs of skills."""
    size: int
    sha256: str
    created_at: float
    changed_at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SkillQuery:
    """Which skills to list, by name: those of an owner and the shared ones of the tenant, or everybody's."""

    owner: Owner | None
    offset: int = 0
    limit: int = 50
