"""The HTTP application: all layers, written from the inside out, and all operations."""

from __future__ import annotations

from typing import TYPE_CHECKING

from warren.gateway.api.auth import Auth
from warren.gateway.api.body_memory import BodyMemory
from warren.gateway.api.dispatch import Dispatcher
from warren.gateway.dialects.chatui import routes as chatui
from warren.gateway.dialects.native import (
    routes_audit,
    routes_egress,
    routes_executions,
    routes_files,
    routes_folders,
    routes_images,
    routes_kernels,
    routes_links,
    routes_packages,
    routes_ports,
    routes_renders,
    routes_run,
    routes_sandboxes,
    routes_skills,
    routes_terminals,
)
from warren.gateway.dialects.onyx import routes as onyx
from warren.gateway.dialects.otari import routes as otari
from warren.gateway.dialects.serving import Dialects, choose
from warren.gateway.mcp import Mcp
from warren.gateway.middleware.early_close import EarlyCloseMiddleware
from warren.gateway.middleware.forwarded import trust_proxies
from warren.gateway.middleware.problems import ProblemMiddleware
from warren.gateway.middleware.request import RequestMiddleware, allow_origins
from warren.gateway.middleware.rewrites import KeyInPath, Rewrites
from warren.gateway.middleware.tracing import trace_requests
from warren.gateway.ops.health import Health
from warren.gateway.ops.metrics import Metrics, MetricsMiddleware
from warren.gateway.pages.documents import Documents
from warren.gateway.ports.hosts import PortHosts

if TYPE_CHECKING:
    from starlette.types import ASGIApp

    from warren.core.service import Service
    from warren.gateway.dialects.dialect import Dialect
    from warren.gateway.ops.metrics import Report
    from warren.settings import Settings

DIALECTS: tuple[Dialect, ...] = (otari.DIALECT, onyx.DIALECT, chatui.DIALECT)
"""The other APIs; settings switch each on and off."""

OPERATIONS = (
    *routes_executions.routes,
    *routes_run.routes,
    *routes_sandboxes.routes,
    *routes_folders.routes,
    *routes_files.routes,
    *routes_kernels.routes,
    *routes_ports.routes,
    *routes_links.routes,
    *routes_egress.routes,
    *routes_packages.routes,
    *routes_terminals.routes,
    *routes_skills.routes,
    *routes_images.routes,
    *routes_renders.routes,
    *routes_audit.routes,
)
"""The native API. The most called operations come first: the first match wins."""


def build_app(
    service: Service, settings: Settings, *, auth: Auth | None = None, metrics: Metrics | None = None
) -> ASGIApp:
    """Build the application. The caller opens and closes the service.

    A second application of the same service, for another socket, has its own `auth` and shares `metrics`.
    """
    auth = auth or Auth(
        service.keys, tokens=service.tokens, required=settings.serve.auth, origins=settings.serve.cors_origins
    )
    reports = _build_reports(service, settings)
    metrics = metrics or Metrics(service, reports)
    documents = Documents(settings, OPERATIONS, choose(DIALECTS, settings))
    open_metrics = settings.serve.open_metrics
    health = Health(service, auth, metrics, documents, reports=reports, open_metrics=open_metrics)
    # One for all: bodies count for their owner in every dialect.
    body_memory = BodyMemory()
    dialects = Dialects(DIALECTS, service, settings, auth, otherwise=health, body_memory=body_memory)
    mcp = Mcp(service, settings, auth, otherwise=dialects, body_memory=body_memory)
    routes = Dispatcher(OPERATIONS, service, settings, auth, otherwise=mcp, body_memory=body_memory)
    hosts = PortHosts(settings.serve.ports_url) if settings.serve.ports_url else None
    app: ASGIApp = ProblemMiddleware(Rewrites(routes, service.sharing, hosts))
    app = allow_origins(app, settings.serve.cors_origins, hosts)
    app = MetricsMiddleware(app, metrics)
    app = EarlyCloseMiddleware(app)
    app = trace_requests(app, service.tracer)
    app = RequestMiddleware(KeyInPath(app, hosts))
    return trust_proxies(app, settings.serve.trusted_proxies)


def build_metrics(service: Service, settings: Settings) -> Metrics:
    """Build the metrics of a service and its dialects, for applications that share them."""
    return Metrics(service, _build_reports(service, settings))


def _build_reports(service: Service, settings: Settings) -> list[Report]:
    return [dialect.report(service, settings) for dialect in choose(DIALECTS, settings) if dialect.report]
