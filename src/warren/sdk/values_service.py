"""Answers about the service itself, as frozen values."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime  # noqa: TC003 - a field's type, read where the page about the library is made
from typing import TYPE_CHECKING, Any

from warren.sdk.values import TIME, TUPLE

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
