"""Stored files, skills and renders: kept for an owner, apart from any sandbox."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from warren.domain.records.principals import Owner

STORED_FILE_BYTES = 16 << 10
"""Counted for each stored file besides its content."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredFile:
    """A file that the service keeps for its owner until it expires."""

    id: str
    owner: Owner
    name: str
    """Chosen by its owner; never a path of ours."""
    size: int
    sha256: str
    blob: str
    """The name of its content among the blobs."""
    created_at: float
    expires_at: float

    @property
    def weight(self) -> int:
        """Bytes that it counts for in a quota: an empty one is a row and a file too."""
        return self.size + STORED_FILE_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class Skill:
    """A package of instructions and files for sandboxes, kept until its owner deletes it."""

    id: str
    owner: Owner
    name: str
    """Unique among the skills of one owner."""
    description: str
    source: str
    """`imported` came as a package, `manual` was written as a text."""
    is_shared: bool = False
    """Whether its whole tenant may see and use it."""
    category: str | None = None
    tags: tuple[str, ...] = ()
    metadata: Mapping[str, object] = field(default_factory=dict)
    """JSON of its owner."""
    server_id: str | None = None
    folder: str = ""
    """Its folder in the package."""
    blob: str
    """The name of the package among the blobs of skills."""
    size: int
    sha256: str
    created_at: float
    changed_at: float


class RenderStatus(enum.StrEnum):
    """Where a render in the background is."""

    QUEUED = "queued"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Render:
    """A deck that is rendered in the background, and its outcome."""

    id: str
    owner: Owner
    status: RenderStatus
    version: str
    name: str
    created_at: float
    expires_at: float
    finished_at: float | None = None
    slides: int = 0
    degraded: tuple[tuple[int, str], ...] = ()
    """Slides that became pictures instead of editable ones, and why."""
    missing: tuple[tuple[str, int], ...] = ()
    """Addresses that the page requested and a render does not have, and how often."""
    script_errors: tuple[str, ...] = ()
    """Uncaught errors of its scripts."""
    file_id: str | None = None
    """The stored file of its archive. Chosen before it is written, so that an aborted render leaves none behind."""
    reason: str | None = None
    error: str | None = None
