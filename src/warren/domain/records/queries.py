"""Questions to a store, and its answers besides records."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Mapping

    from warren.domain.lifecycle import Status
    from warren.domain.records.principals import Owner

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """A part of a list, and the length of the whole."""

    items: tuple[T, ...]
    total: int
    offset: int
    limit: int


@dataclass(frozen=True, slots=True)
class RateDecision:
    """Whether a rate allows a request now."""

    allowed: bool
    remaining: int
    retry_after_s: float
    """When the rate allows as much again; 0 when allowed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxQuery:
    """Filters of a list of sandboxes, newest first."""

    owner: Owner | None = None
    """None: of all owners."""
    statuses: frozenset[Status] = frozenset()
    """Empty: all."""
    image: str | None = None
    session_key: str | None = None
    metadata: Mapping[str, str] = field(default_factory=dict)
    offset: int = 0
    limit: int = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class SkillQuery:
    """Which skills to list, by name: those of an owner and the shared ones of the tenant; without an owner, all."""

    owner: Owner | None
    offset: int = 0
    limit: int = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditQuery:
    """Filters of a list of audit rows, newest first."""

    tenant: str | None = None
    subject: str | None = None
    action: str | None = None
    sandbox_id: str | None = None
    execution_id: str | None = None
    request_id: str | None = None
    since: float | None = None
    """Included; `until` is not."""
    until: float | None = None
    offset: int = 0
    limit: int = 100
