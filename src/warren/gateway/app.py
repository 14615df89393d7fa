"""The HTTP application: every layer that a request passes, written from the inside out, and every route."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import orjson
from starlette.exceptions import HTTPException

from warren.gateway.api.auth import Auth
from warren.gateway.api.body_memory import BodyMemory
from warren.gateway.api.dispatch import Dispatcher
from warren.gateway.api.operations import Reply
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
from warren.gateway.middleware.key_in_path import KeyInPath
from warren.gateway.middleware.problems import ProblemMiddleware
from warren.gateway.middleware.request import RequestMiddleware, allow_origins
from warren.gateway.middleware.rewrites import Rewrites
from warren.gateway.middleware.tracing import trace_requests
from warren.gateway.openapi.document import build_dialect_openapi, build_openapi
from warren.gateway.openapi.health import PATHS, describe_health
from warren.gateway.openapi.html import POLICY, build_page, has_docs
from warren.gateway.openapi.problems import explain_codes
from warren.gateway.ops.health import Health
from warren.gateway.ops.metrics import Metrics, MetricsMiddleware
from warren.gateway.ports.hosts import PortHosts

if TYPE_CHECKING:
    from collections.abc import Iterable

    from starlette.types import ASGIApp, Receive, Scope, Send

    from warren.core.service import Service
    from warren.gateway.dialects.dialect import Dialect, Report
    from warren.settings import Settings

DIALECTS: tuple[Dialect, ...] = (otari.DIALECT, onyx.DIALECT, chatui.DIALECT)
"""The other APIs; settings switch each of them on and off."""

OPERATIONS = (
    *routes_executions.OPERATIONS,
    *routes_run.OPERATIONS,
    *routes_sandboxes.OPERATIONS,
    *routes_folders.OPERATIONS,
    *routes_files.OPERATIONS,
    *routes_kernels.OPERATIONS,
    *routes_ports.OPERATIONS,
    *routes_links.OPERATIONS,
    *routes_egress.OPERATIONS,
    *routes_packages.OPERATIONS,
    *routes_terminals.OPERATIONS,
    *routes_skills.OPERATIONS,
    *routes_images.OPERATIONS,
    *routes_renders.OPERATIONS,
    *routes_audit.OPERATIONS,
)
"""All of the native API; those that are called most come first, because the first that fits is taken."""


def build_app(
    service: Service, settings: Settings, *, auth: Auth | None = None, metrics: Metrics | None = None
) -> ASGIApp:
    """Build the application of a service that somebody else opens and closes.

    A second one of the same service, for another way in, says who is there, and counts with the first.
    """
    auth = auth or Auth(
        service.keys, tokens=service.tokens, required=settings.serve.auth, origins=settings.serve.cors_origins
    )
    reports = _build_reports(service, settings)
    metrics = metrics or Metrics(service, reports)
    documents = Documents(settings, choose(DIALECTS, settings))
    health = Health(service, auth, metrics, documents, reports=reports)
    # One for all: what somebody sends counts, in whatever dialect.
    room = BodyMemory()
    dialects = Dialects(DIALECTS, service, settings, auth, otherwise=health, room=room)
    mcp = Mcp(service, settings, auth, otherwise=dialects, room=room)
    routes = Dispatcher(OPERATIONS, service, settings, auth, otherwise=mcp, room=room)
    hosts = PortHosts(settings.serve.ports_url) if settings.serve.ports_url else None
    app: ASGIApp = ProblemMiddleware(Rewrites(routes, service.sharing, hosts))
    app = allow_origins(app, settings.serve.cors_origins, hosts)
    app = MetricsMiddleware(app, metrics)
    app = EarlyCloseMiddleware(app)
    app = trace_requests(app, service.tracer)
    app = RequestMiddleware(KeyInPath(app, hosts))
    return trust_proxies(app, settings.serve.trusted_proxies)


def build_metrics(service: Service, settings: Settings) -> Metrics:
    """Build the numbers of a service, with those of its dialects, for applications that count together."""
    return Metrics(service, _build_reports(service, settings))


def _build_reports(service: Service, settings: Settings) -> list[Report]:
    return [dialect.report(service, settings) for dialect in choose(DIALECTS, settings) if dialect.report]


class Documents:
    """The documentation, and the answer for every address that nobody knows."""

    def __init__(self, settings: Settings, dialects: Iterable[Dialect]) -> None:
        self._settings = settings
        self._is_shown = has_docs(settings)
        self._dialects = {dialect.name: dialect for dialect in dialects}
        # Not before somebody asks: they take longer than the rest of the application.
        self._native = functools.cache(self._build_native)
        self._dialect = functools.cache(self._build_dialect)

    def _find(self, path: str) -> Reply | None:
        if not self._is_shown:
            return None
        folder, _, name = path[1:].partition("/")
        name = name.removesuffix(".json") if folder == "openapi" else name
        if folder in {"docs", "openapi"} and name in self._dialects:
            return self._dialect(name).get(path)
        return self._native().get(path) if path in {"/", "/docs", "/openapi.json"} else None

    def _build_native(self) -> dict[str, Reply]:
        with_auth = self._settings.serve.auth
        document = build_openapi(OPERATIONS, with_auth=with_auth, more_paths=describe_health(with_auth=with_auth))
        others = {f"/docs/{name}": dialect.title for name, dialect in self._dialects.items()}
        return {
            "/": Reply(b"", 307, ((b"location", b"/docs"),)),
            "/openapi.json": _json(document),
            "/docs": _html(build_page(document, explain_codes(), others=others)),
        }

    def _build_dialect(self, name: str) -> dict[str, Reply]:
        is_open = getattr(self._settings.dialects, name).open
        document = build_dialect_openapi(self._dialects[name], with_auth=self._settings.serve.auth and not is_open)
        file = f"/openapi/{name}.json"
        page = build_page(document, {}, file=file, others={"/docs": "Warren's own API"})
        return {file: _json(document), f"/docs/{name}": _html(page)}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer."""
        if scope["type"] == "lifespan":
            await _live(receive, send)
            return
        if scope["type"] != "http":
            raise HTTPException(404)
        reply = self._find(scope["path"])
        is_read = scope["method"] in {"GET", "HEAD"}
        if reply is None and (is_read or scope["path"] not in PATHS):
            raise HTTPException(404)
        if reply is None or not is_read:
            raise HTTPException(405, headers={"Allow": "GET, HEAD"})
        scope["state"]["route"] = scope["path"]
        await reply(scope, receive, send)


def _json(document: dict[str, Any]) -> Reply:
    return Reply(orjson.dumps(document), 200, ((b"content-type", b"application/json"),))


def _html(page: str) -> Reply:
    policy = (b"content-security-policy", POLICY.encode())
    return Reply(page.encode(), 200, ((b"content-type", b"text/html; charset=utf-8"), policy))


async def _live(receive: Receive, send: Send) -> None:
    """Tell the server that we are ready: whoever opened the service closes it too."""
    while True:
        message = await receive()
        await send({"type": f"{message['type']}.complete"})
        if message["type"] == "lifespan.shutdown":
            return
