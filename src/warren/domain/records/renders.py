"""Renders in the background."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from warren.domain.records.principals import Owner


class RenderStatus(enum.StrEnum):
    """Where a render in the background is."""

    QUEUED = "queued"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Render:
    """A deck that is rendered in the background, and what became of it."""

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
    """Slides that are pictures though they were meant to be editable, and why."""
    missing: tuple[tuple[str, int], ...] = ()
    """Addresses that the page asked for and that do not exist in a render, and how often."""
    script_errors: tuple[str, ...] = ()
    """What its scripts threw and nobody caught."""
    file_id: str | None = None
    """The stored file that its archive is in, or will be: known before, so that none is left when something ends it."""
    reason: str | None = None
    error: str | None = None
