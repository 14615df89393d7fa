"""Token buckets in memory: rate limits that need not survive a restart."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass

from warren.domain.records import RateDecision

MOST_BUCKETS = 10_000


@dataclass(slots=True)
class _Bucket:
    level: float
    at: float
    full_at: float


class Buckets:
    """Buckets by name. A full bucket is dropped: it equals a new one."""

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
