"""Counts what the core does. The core tells it; whoever wants numbers reads them (the gateway, when it is scraped)."""

from __future__ import annotations

import bisect
from collections import Counter

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
"""Upper bounds of the buckets of a histogram of durations."""


class Histogram:
    """How often something took how long."""

    __slots__ = ("counts", "total")

    def __init__(self) -> None:
        self.counts = [0] * (len(SECONDS) + 1)
        """One for each bound, not added up, and one for all that is longer."""
        self.total = 0.0

    def add(self, seconds: float) -> None:
        """Count one duration."""
        self.counts[bisect.bisect_left(SECONDS, seconds)] += 1
        self.total += seconds


class Counters:
    """Is told of what happened and adds it up: a few dictionary operations, nothing waits, nothing is kept one by one.

    Whoever is given none makes one of their own: `observer or Observer()`. Labels are few words of ours, never a
    caller's.
    """

    def __init__(self) -> None:
        self.executions: Counter[tuple[str, str]] = Counter()
        """By kind and cause."""
        self.execution_seconds: dict[str, Histogram] = {}
        """By kind."""
        self.create_seconds: dict[str, Histogram] = {}
        """By where the sandbox came from: `pool` or `engine`."""
        self.rejections: Counter[str] = Counter()
        """By reason: the name of a quota, a rate, `queue_full`, `waited_too_long`."""
        self.file_bytes: Counter[str] = Counter()
        """Content that went `in` to sandboxes and `out` of them."""
        self.connections: Counter[str] = Counter()
        """Of programs to the outside, by verdict: `allowed` or `refused`."""
        self.connection_bytes: Counter[str] = Counter()
        """That programs sent `out`, and got `in`."""
        self.package_files: Counter[str] = Counter()
        """Files of packages, or parts of them, by where they came from: the `cache` or an `index`."""

    def execution_finished(self, kind: str, cause: str, seconds: float) -> None:
        """Count an execution that has its result."""
        self.executions[kind, cause] += 1
        if kind not in self.execution_seconds:
            self.execution_seconds[kind] = Histogram()
        self.execution_seconds[kind].add(seconds)

    def sandbox_created(self, source: str, seconds: float) -> None:
        """Count a sandbox that is ready; `source` is `pool` or `engine`."""
        self.create_seconds.setdefault(source, Histogram()).add(seconds)

    def rejected(self, reason: str) -> None:
        """Count a request that admission sent away."""
        self.rejections[reason] += 1

    def moved(self, direction: str, size: int) -> None:
        """Count bytes of files; `direction` is `in` or `out`."""
        self.file_bytes[direction] += size

    def connection_ended(self, sent: int, received: int) -> None:
        """Count a connection to the outside that is over, and what passed."""
        self.connections["allowed"] += 1
        self.connection_bytes["out"] += sent
        self.connection_bytes["in"] += received
