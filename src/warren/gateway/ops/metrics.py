"""Prometheus metrics. Requests are counted as they end; everything else is read at each scrape.

Labels are routes as they are written in the code, and fixed words: never an id, a name or a path of a caller.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Protocol

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from warren import __version__
from warren.core.telemetry.counters import SECONDS
from warren.domain.lifecycle import Status
from warren.domain.records import SandboxQuery

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from prometheus_client.metrics_core import Metric
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from warren.core.service import Service
    from warren.settings import Settings

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "WEBSOCKET"})


class Report(Protocol):
    """Additions of a dialect to health and metrics, where its clients look for them."""

    def __init__(self, service: Service, settings: Settings) -> None: ...

    def health(self) -> Mapping[str, Any]:
        """Return its fields of `/health`."""

    def details(self, reasons: list[str]) -> Mapping[str, Any]:
        """Return its fields of `/healthz/details`; `reasons` are why the service cannot work."""

    def collect(self, metrics: Metrics) -> Iterator[Metric]:
        """Yield its metrics."""


class Metrics:
    """The metrics of one service, in a registry of their own."""

    def __init__(self, service: Service, reports: Iterable[Report] = ()) -> None:
        self._core = _Core(service)
        self._registry = registry = CollectorRegistry()
        for report in reports:
            registry.register(_Reported(self, report))
        registry.register(self._core)
        registry.register(service.observer.registry)
        ProcessCollector(registry=registry)
        self._requests = Counter(
            "warren_http_requests", "Requests that ended.", ("method", "route", "status"), registry=registry
        )
        self._seconds = Histogram(
            "warren_http_request_seconds",
            "From the head of a request to the end of its answer.",
            ("method", "route"),
            buckets=SECONDS,
            registry=registry,
        )
        moved = Counter("warren_http_bytes", "Bytes of bodies.", ("direction",), registry=registry)
        self._received, self._sent = moved.labels("in"), moved.labels("out")
        self.websockets = 0
        """Open now."""
        Gauge("warren_websockets", "WebSockets that are open.", registry=registry).set_function(lambda: self.websockets)
        self._known: dict[tuple[str, str, int], tuple[Counter, Histogram]] = {}
        """A cache of `labels`, which is the expensive half of counting."""

    def count(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count a request that ended; status 0: it was never answered."""
        key = (method if method in _METHODS else "other", route, status)
        known = self._known.get(key)
        if known is None:
            known = self._requests.labels(*key), self._seconds.labels(*key[:2])
            self._known[key] = known
        known[0].inc()
        known[1].observe(seconds)

    def count_bytes(self, received: int, sent: int) -> None:
        """Count the bodies of a request and its answer."""
        self._received.inc(received)
        self._sent.inc(sent)

    async def render(self) -> bytes:
        """Write all metrics in Prometheus' text format."""
        await self._core.refresh()
        return generate_latest(self._registry)

    def requests(self) -> tuple[Metric, Metric]:
        """Return count and duration of requests, for dialects that have them under other names."""
        return next(iter(self._requests.collect())), next(iter(self._seconds.collect()))


class _Reported(Collector):
    """The metrics of a dialect, under the names that its operators know."""

    def __init__(self, metrics: Metrics, report: Report) -> None:
        self._metrics = metrics
        self._report = report

    def describe(self) -> list[Metric]:
        """Return nothing: the registry would otherwise collect at registration."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Yield the families of numbers."""
        return self._report.collect(self._metrics)


class MetricsMiddleware:
    """Counts every request. Inside of the layer that sets `scope["state"]`, outside of all that answer."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on."""
        if scope["type"] == "websocket":
            await self._pass_websocket(scope, receive, send)
            return
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        begun = time.perf_counter()
        status = received = sent = 0

        async def count_in() -> Message:
            nonlocal received
            message = await receive()
            received += len(message.get("body", b""))
            return message

        async def count_out(message: Message) -> None:
            nonlocal status, sent
            if message["type"] == "http.response.start":
                status = message["status"]
            else:
                sent += len(message.get("body", b""))
            await send(message)

        try:
            await self._app(scope, count_in, count_out)
        finally:
            route = scope.get("state", {}).get("route", "none")
            self._metrics.count(scope["method"], route, status, time.perf_counter() - begun)
            self._metrics.count_bytes(received, sent)

    async def _pass_websocket(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Count a WebSocket as a request that ends when it is accepted, and its messages as bodies."""
        begun = time.perf_counter()
        status, lasting = 0, 0.0

        async def count_in() -> Message:
            message = await receive()
            self._metrics.count_bytes(_measure(message), 0)
            return message

        async def count_out(message: Message) -> None:
            nonlocal status, lasting
            await send(message)
            if message["type"] in {"websocket.accept", "websocket.http.response.start"}:
                status, lasting = message.get("status", 101), time.perf_counter() - begun
                self._metrics.websockets += status == 101
            self._metrics.count_bytes(0, _measure(message))

        try:
            await self._app(scope, count_in, count_out)
        finally:
            self._metrics.websockets -= status == 101
            route = scope.get("state", {}).get("route", "none")
            self._metrics.count("WEBSOCKET", route, status, lasting or time.perf_counter() - begun)


def _measure(message: Message) -> int:
    return len(message.get("bytes") or message.get("text") or message.get("body") or b"")


class _Core(Collector):
    """Metrics of the core, read at each scrape."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._sandboxes: dict[Status, int] = {}
        self._recorded = 0

    async def refresh(self) -> None:
        """Read the numbers that the store has, which takes an await."""
        store = self._service.store
        for status in Status:
            page = await store.list(SandboxQuery(statuses=frozenset({status}), limit=1))
            self._sandboxes[status] = page.total
        self._recorded = await store.recorded(None)

    def collect(self) -> Iterator[Metric]:
        """Yield the families of numbers."""
        service = self._service
        yield _gauge("warren_info", "The version.", ("version",), {(__version__,): 1})
        yield _gauge("warren_sandboxes", "By status.", ("status",), {(s.value,): n for s, n in self._sandboxes.items()})
        sizes = {tuple(name.rsplit("/", 1)): size for name, size in service.pool.sizes().items()}
        yield _gauge("warren_pool_sandboxes", "That wait for an owner.", ("image", "storage"), sizes)
        lines = {
            "create": service.admission.creates,
            "execution": service.admission.executions,
            "transfer": service.files.transfers.everybody,
            "port": service.ports.connections.everybody,
        }
        yield _gauge(
            "warren_waiting", "Requests that wait for a place.", ("line",), {(k,): g.waiting for k, g in lines.items()}
        )
        yield _gauge(
            "warren_under_way", "Places that are taken.", ("line",), {(k,): g.inside for k, g in lines.items()}
        )
        yield _gauge("warren_record_bytes", "Kept of executions.", (), {(): self._recorded})
        yield _gauge("warren_audit_backlog", "Audit entries that are not on disk yet.", (), {(): service.audit.backlog})


def _gauge(name: str, text: str, labels: tuple[str, ...], values: Mapping[tuple[str, ...], float]) -> Metric:
    family = GaugeMetricFamily(name, text, labels=labels)
    for key, value in values.items():
        family.add_metric(key, value)
    return family
