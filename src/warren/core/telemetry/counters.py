"""Metrics of the core. Labels are constants of the code, never an id, a name or a path of a caller.

Metrics are prometheus_client objects: one observation takes under a microsecond, so nothing is batched.
"""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Histogram

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
"""Upper bounds of the buckets of every histogram of durations."""
OUTCOMES = ("successful", "failed", "timed_out")


class Outcomes:
    """How often an operation ended in each of three ways, and how long it took."""

    def __init__(self, ended: str, seconds: str, registry: CollectorRegistry) -> None:
        self.ended = Counter(ended, "Operations that ended, by outcome.", ("outcome",), registry=registry)
        self.seconds = Histogram(seconds, "Duration of an operation.", buckets=SECONDS, registry=registry)
        self._registry = registry
        self._name = f"{ended}_total"
        for outcome in OUTCOMES:
            self.ended.labels(outcome)

    def count(self, outcome: str, seconds: float) -> None:
        """Count an operation that ended; `outcome` is one of OUTCOMES."""
        self.ended.labels(outcome).inc()
        self.seconds.observe(seconds)

    def read(self, outcome: str) -> int:
        """Return how many operations ended so."""
        return int(self._registry.get_sample_value(self._name, {"outcome": outcome}) or 0)


class Counters:
    """The metrics of one service, in a registry of their own: several services of a process count separately.

    A component that is given none makes its own: `observer or Counters()`.
    """

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        self._executions = Counter("warren_executions", "Executions that ended.", ("kind", "cause"), registry=registry)
        self._execution_seconds = Histogram(
            "warren_execution_seconds", "Duration of an execution.", ("kind",), buckets=SECONDS, registry=registry
        )
        self._create_seconds = Histogram(
            "warren_create_seconds",
            "Duration of a create; source `pool` is a hit, `engine` a miss.",
            ("source",),
            buckets=SECONDS,
            registry=registry,
        )
        self._rejected = Counter("warren_rejected", "Requests that were rejected.", ("reason",), registry=registry)
        moved = Counter("warren_file_bytes", "Content of files and archives.", ("direction",), registry=registry)
        self._file_bytes = {each: moved.labels(each) for each in ("in", "out")}
        connections = Counter(
            "warren_egress_connections", "Egress connections that ended.", ("verdict",), registry=registry
        )
        self._connections = {each: connections.labels(each) for each in ("allowed", "refused")}
        passed = Counter("warren_egress_bytes", "Bytes of egress connections.", ("direction",), registry=registry)
        self._connection_bytes = {each: passed.labels(each) for each in ("in", "out")}
        files = Counter("warren_package_files", "Package files, by their source.", ("source",), registry=registry)
        self._package_files = {each: files.labels(each) for each in ("cache", "index")}
        self.renders = Outcomes("warren_renders", "warren_render_seconds", registry)
        self._by_end: dict[tuple[str, str], tuple[Counter, Histogram]] = {}
        """Children of the execution metrics, cached: a lookup costs more than the count."""

    def execution_finished(self, kind: str, cause: str, seconds: float) -> None:
        """Count an execution that has its result."""
        found = self._by_end.get((kind, cause))
        if found is None:
            found = self._executions.labels(kind, cause), self._execution_seconds.labels(kind)
            self._by_end[kind, cause] = found
        found[0].inc()
        found[1].observe(seconds)

    def sandbox_created(self, source: str, seconds: float) -> None:
        """Count a sandbox that is ready; `source` is `pool` or `engine`."""
        self._create_seconds.labels(source).observe(seconds)

    def rejected(self, reason: str) -> None:
        """Count a rejected request; `reason` is a quota, a rate, `queue_full` or `waited_too_long`."""
        self._rejected.labels(reason).inc()

    def moved(self, direction: str, size: int) -> None:
        """Count bytes of files; `direction` is `in` or `out`, seen from the sandbox."""
        self._file_bytes[direction].inc(size)

    def connection_ended(self, sent: int, received: int) -> None:
        """Count an egress connection that ended, and its bytes."""
        self._connections["allowed"].inc()
        self._connection_bytes["out"].inc(sent)
        self._connection_bytes["in"].inc(received)

    def connection_refused(self) -> None:
        """Count an egress connection that the policy refused."""
        self._connections["refused"].inc()

    def package_file(self, source: str) -> None:
        """Count a package file, or a part of one, that a sandbox got; `source` is `cache` or `index`."""
        self._package_files[source].inc()
