"""Executions as they are kept."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from warren.domain.records.principals import Owner
    from warren.domain.values import ExecKind, ExecResult


@dataclass(frozen=True, slots=True, kw_only=True)
class Execution:
    """One run of code or a command. Without a result it is running."""

    id: str
    sandbox_id: str
    owner: Owner
    kind: ExecKind
    kernel: str | None
    code: str
    """What was run, cut to what is kept."""
    background: bool = False
    request_id: str
    started_at: float
    finished_at: float | None = None
    result: ExecResult | None = None
