"""The records of a memory store, and how rows are ordered and cut into pages."""

from __future__ import annotations

import secrets
from collections import defaultdict
from dataclasses import dataclass, field
from operator import attrgetter
from typing import TYPE_CHECKING, TypeVar

from warren.domain.errors import StoreError
from warren.domain.records import FIRST_HASH, Page
from warren.stores.quotas import Buckets

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from warren.domain.egress import Brokered, Grant
    from warren.domain.records import (
        ApiKey,
        AuditRow,
        Callbacks,
        Execution,
        Owner,
        RateDecision,
        Render,
        Sandbox,
        Skill,
        StoredFile,
    )

T = TypeVar("T")


@dataclass(slots=True)
class Tables:
    """The records. Two stores over the same tables see each other's changes."""

    identity: str = field(default_factory=lambda: secrets.token_hex(16))
    sandboxes: dict[str, Sandbox] = field(default_factory=dict)
    executions: dict[str, dict[str, tuple[Execution, int]]] = field(default_factory=lambda: defaultdict(dict))
    """By sandbox, then by id: the record and how many bytes it takes."""
    audit: list[AuditRow] = field(default_factory=list)
    audit_start: tuple[int, str] = (0, FIRST_HASH)
    audit_secret: bytes = field(default_factory=lambda: secrets.token_bytes(32), repr=False)
    callbacks: dict[str, Callbacks] = field(default_factory=dict)
    grants: dict[str, Grant] = field(default_factory=dict)
    secrets: dict[tuple[str, str], Brokered] = field(default_factory=dict, repr=False)
    keys: dict[str, ApiKey] = field(default_factory=dict)
    idempotency: dict[tuple[Owner, str], tuple[str, str, float]] = field(default_factory=dict)
    """Fingerprint, target, and when it expires."""
    files: dict[str, StoredFile] = field(default_factory=dict)
    skills: dict[str, Skill] = field(default_factory=dict)
    renders: dict[str, Render] = field(default_factory=dict)


class OpenTables:
    """Tables that can be read and changed while their store is open."""

    def __init__(self, tables: Tables | None = None) -> None:
        self.tables = Tables() if tables is None else tables
        self._is_open = False
        self._buckets = Buckets()

    @property
    def identity(self) -> str:
        return self._tables.identity

    async def open(self) -> None:
        self._is_open = True

    async def close(self) -> None:
        self._is_open = False

    async def ping(self) -> None:
        self._check_open()

    async def take(self, bucket: str, *, capacity: int, per_s: float, amount: int = 1) -> RateDecision:
        return self._buckets.take(bucket, capacity=capacity, per_s=per_s, amount=amount)

    @property
    def _tables(self) -> Tables:
        self._check_open()
        return self.tables

    def _check_open(self) -> None:
        if not self._is_open:
            raise StoreError("the store is not open")


def first(rows: Iterable[T]) -> T | None:
    """Return the first row, if any."""
    return next(iter(rows), None)


def oldest(rows: Iterable[T], *by: str) -> tuple[T, ...]:
    """Sort by some fields, ascending; of equals the one that was added first comes first."""
    return tuple(sorted(rows, key=attrgetter(*by)))


def newest(rows: Iterable[T], by: str) -> tuple[T, ...]:
    """Sort by a field, descending; of equals the one that was added last comes first."""
    return oldest(rows, by)[::-1]


def page(rows: Sequence[T], offset: int, limit: int) -> Page[T]:
    """Cut the page that begins at an offset."""
    return Page(tuple(rows[max(0, offset) :][: max(0, limit)]), len(rows), offset, limit)
