"""What a store answers besides records: a part of a list, and what a bucket gave."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """A part of a list, and how long the whole is."""

    items: tuple[T, ...]
    total: int
    offset: int
    limit: int


@dataclass(frozen=True, slots=True)
class RateDecision:
    """What taking from a bucket gave."""

    allowed: bool
    remaining: int
    retry_after_s: float
    """When as much would be there again; 0 when allowed."""
