"""The span of a request: the first of its trace, or one within the client's."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from warren.core.telemetry.tracing import Tracer

_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_HEADS = frozenset({"http.response.start", "websocket.http.response.start", "websocket.accept"})
_UNTRACED = frozenset({"/livez", "/readyz", "/healthz", "/health", "/metrics"})
"""Polled by machines every few seconds."""


def trace_requests(app: ASGIApp, tracer: Tracer) -> ASGIApp:
    """Have requests traced, where the operator wants it."""
    return TracingMiddleware(app, tracer) if tracer.is_on else app


class TracingMiddleware:
    """Goes within what gives the request its id."""

    def __init__(self, app: ASGIApp, tracer: Tracer) -> None:
        self._app = app
        self._tracer = tracer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, in a span that ends with its answer."""
        if scope["type"] not in {"http", "websocket"} or scope["path"] in _UNTRACED:
            await self._app(scope, receive, send)
            return
        status: int | None = None

        async def watch(message: Message) -> None:
            nonlocal status
            if message["type"] in _HEADS:
                status = message.get("status", 101)
            await send(message)

        state = scope["state"]
        with self._tracer.request(scope["headers"]) as span:
            state["trace_id"] = span.trace_id
            try:
                await self._app(scope, receive, watch)
            finally:
                asked = scope.get("method", "WEBSOCKET")
                method = asked if asked in _METHODS or asked == "WEBSOCKET" else "_OTHER"
                route = state.get("route", "-")
                span.rename(f"{method} {route}")
                span.set(
                    {
                        "http.request.method": method,
                        "http.route": route,
                        "http.response.status_code": status,
                        "warren.request_id": state["request_id"],
                    }
                )
                if status is not None and status >= 500:
                    span.fail(str(status))
