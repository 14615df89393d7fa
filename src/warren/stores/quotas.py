"""Quotas that stores enforce, the sentences of the refusals, and rate limits, which need not survive a restart."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from warren.domain.errors import QuotaExceeded
from warren.domain.records import RateDecision
from warren.stores.base import ResourceUseExceeded

if TYPE_CHECKING:
    from collections.abc import Callable

    from warren.domain.records import Owner, ResourceUse, Skill, StoredFile
    from warren.stores.base import Ceilings

_RETRY_S = 60.0
"""A full quota stays full until files or skills are deleted or expire."""
_WORDS = {
    "sandboxes": ("sandboxes", "delete one"),
    "active": ("active sandboxes", "stop or delete one"),
    "memory_bytes": ("bytes of memory in active sandboxes", "stop or delete one"),
    "disk_bytes": ("bytes of disk in sandboxes", "delete one"),
    "gpus": ("GPUs in active sandboxes", "stop or delete one"),
}

MOST_BUCKETS = 10_000


def check_use(owner: Owner, ceilings: Ceilings, use: Callable[[Owner | None, str | None], ResourceUse]) -> None:
    """Raise ResourceUseExceeded for the first ceiling that the use of an owner, a tenant or all users exceeds."""
    wholes = (
        ("your quota", owner, None),
        (f"the ceiling of tenant {owner.tenant!r}", None, owner.tenant),
        ("the quota of all users together", None, None),
    )
    for ceiling, (possessor, whose, tenant) in zip(ceilings, wholes, strict=True):
        if ceiling is None or not any(ceiling):
            continue
        over = use(whose, tenant).over(ceiling)
        if over:
            what, remedy = _WORDS[over]
            sentence = f"{possessor} of {getattr(ceiling, over)} {what} is used up: {remedy}"
            raise ResourceUseExceeded(sentence, whose or tenant)


def check_file(file: StoredFile, own_bytes: int, all_bytes: int, weigh: Callable[[Owner | None], int]) -> None:
    """Raise QuotaExceeded when a new file would exceed its owner's or the total limit of bytes."""
    for most, owner, whose in ((own_bytes, file.owner, "your files"), (all_bytes, None, "those of all owners")):
        if most and weigh(owner) + file.weight > most:
            raise QuotaExceeded(
                f"there is no room for a file of {file.size} bytes: {whose} may have {most} bytes together; "
                "delete some, or wait until they expire",
                retry_after_s=_RETRY_S,
            )


def check_skill_count(have: int, most: int) -> None:
    """Raise QuotaExceeded when an owner has as many skills as allowed."""
    if most and have >= most:
        raise QuotaExceeded(f"you have {have} skills and may have {most}: delete some", retry_after_s=_RETRY_S)


def check_skill_bytes(skill: Skill, *, was: int, have: int, most: int) -> None:
    """Raise QuotaExceeded when the packages of an owner would weigh more than they may, and more than before."""
    if most and skill.size > was and have - was + skill.size > most:
        raise QuotaExceeded(
            f"your skills have {have} bytes and may have {most}: this one would have {skill.size}, so delete some",
            retry_after_s=_RETRY_S,
        )


@dataclass(slots=True)
class _Bucket:
    level: float
    at: float
    full_at: float


class Buckets:
    """Token buckets in memory, by name. A full bucket is dropped: it equals a new one."""

    def __init__(self) -> None:
        self._buckets: dict[str, _Bucket] = {}
        self._sweep_at = MOST_BUCKETS

    def take(self, name: str, *, capacity: int, per_s: float, amount: int) -> RateDecision:
        """Take from a bucket, all or nothing."""
        now = time.monotonic()
        bucket = self._buckets.get(name)
        if bucket is None:
            bucket = self._buckets[name] = _Bucket(capacity, now, now)
            if len(self._buckets) > self._sweep_at:
                self._sweep(now)
        bucket.level = min(capacity, bucket.level + (now - bucket.at) * per_s)
        bucket.at = now
        allowed = bucket.level >= amount
        if allowed:
            bucket.level -= amount
        bucket.full_at = now + _wait(capacity - bucket.level, per_s)
        wait = 0.0 if allowed else math.inf if amount > capacity else _wait(amount - bucket.level, per_s)
        return RateDecision(allowed, int(bucket.level), wait)

    def _sweep(self, now: float) -> None:
        self._buckets = {name: bucket for name, bucket in self._buckets.items() if bucket.full_at >= now}
        # WHY: while all buckets are in use none can be dropped, and a scan for each new bucket would be slow.
        self._sweep_at = max(MOST_BUCKETS, 2 * len(self._buckets))


def _wait(amount: float, per_s: float) -> float:
    return amount / per_s if per_s > 0 else math.inf
