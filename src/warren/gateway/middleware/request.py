"""The first layer of every request: its id, limits of its head, safe headers on its answer, a line in the log."""

from __future__ import annotations

import logging
import os
import re
import time
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware

from warren.gateway.api.operations import SANDBOX_ID
from warren.gateway.api.problems import respond
from warren.gateway.api.shared_links import LINKS, is_foreign
from warren.gateway.middleware.rewrites import KEYS

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from warren.gateway.ports.hosts import PortHosts

MAX_PATH_BYTES = 16 * 1024
MAX_HEAD_BYTES = 32 * 1024
MAX_HEADERS = 100
EXPOSED_HEADERS = (
    *("X-Request-ID", "Location", "Retry-After", "RateLimit-Limit", "RateLimit-Remaining"),
    *("ETag", "Last-Modified", "Accept-Ranges", "Content-Range", "Content-Disposition", "Warren-Complete"),
    "Warren-Error",
    *("X-Rendering-Version", "X-Slide-Count", "X-Render-ID", "X-Degraded-Slides"),
    *("X-Missing-Count", "X-Script-Error-Count", "X-PDF-File-Name", "X-LaTeX-Compiler"),
    "Mcp-Session-Id",
)

_log = logging.getLogger("warren.access")
_PATH_CHARACTERS = 200
_PREFIXES = f"{KEYS}|{LINKS}".replace("/", "")
_CREDENTIAL = re.compile(rf"((?:^|/)(?i:{_PREFIXES})/+)[^/]+|wrn_[\w-]+|eyJ[\w.-]+")
"""Keys, tokens and links in a path, wherever a client put them by mistake, also below a prefix or in capitals."""
_REQUEST_ID = re.compile(rb"[A-Za-z0-9._:/+=-]{1,128}")
_HEADS = frozenset({"http.response.start", "websocket.http.response.start", "websocket.accept"})
_SAFE = (
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
)
_NOTHING_ACTIVE = (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'; sandbox")
"""The policy of answers without one of their own: a sandbox's file that a browser opens runs nothing in our origin."""


class RequestMiddleware:
    """The outermost layer. Puts the request's id into `scope["state"]["request_id"]`; layers below may change it."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, and log its end."""
        if scope["type"] not in {"http", "websocket"}:
            await self._app(scope, receive, send)
            return
        begun = time.perf_counter()
        state = scope.setdefault("state", {})
        name_request(scope["headers"], state)
        status = 0

        async def finish_head(message: Message) -> None:
            nonlocal status
            if message["type"] in _HEADS:
                status = message.get("status", 101)
                is_ours = not state.get("is_foreign")
                message["headers"] = _finish(message.get("headers", ()), state["request_id"], is_ours=is_ours)
            await send(message)

        try:
            refusal = refuse_head(scope)
            if refusal is not None:
                await respond(refusal, state["request_id"])(scope, receive, finish_head)
            else:
                await self._app(scope, receive, finish_head)
        finally:
            _write_line(scope, state["request_id"], status, time.perf_counter() - begun)


def name_request(headers: Iterable[tuple[bytes, bytes]], state: dict[str, Any]) -> None:
    """Set the client's request id, if it is well-formed, or a new one with `has_own_id`."""
    for name, value in headers:
        if name == b"x-request-id" and _REQUEST_ID.fullmatch(value):
            state["request_id"] = value.decode()
            return
    state["request_id"] = f"req_{os.urandom(12).hex()}"
    state["has_own_id"] = True


def refuse_head(scope: Scope) -> HTTPException | None:
    """Return why a request is refused unread: an address or headers over the limits, or not one Host."""
    if len(scope.get("raw_path") or b"") + len(scope["query_string"]) > MAX_PATH_BYTES:
        return HTTPException(414, f"the address is longer than {MAX_PATH_BYTES} bytes")
    headers = scope["headers"]
    if len(headers) > MAX_HEADERS or sum(len(name) + len(value) for name, value in headers) > MAX_HEAD_BYTES:
        return HTTPException(431, f"more than {MAX_HEADERS} headers, or more than {MAX_HEAD_BYTES} bytes of them")
    # WHY: a proxy and this service may each take another one of two, and so disagree about who is asked.
    hosts = sum(name == b"host" for name, _ in headers)
    if hosts != 1 and (hosts or scope.get("http_version") != "1.0"):
        return HTTPException(400, "a request has one Host header")
    return None


def allow_origins(app: ASGIApp, origins: Sequence[str], hosts: PortHosts | None = None) -> ASGIApp:
    """Allow web pages of these origins to call the API (CORS)."""
    if not origins:
        return app
    cors = CORSMiddleware(
        app,
        allow_origins=origins,
        allow_methods=("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"),
        allow_headers=("*",),
        expose_headers=EXPOSED_HEADERS,
        max_age=600,
    )

    async def allow_ours(scope: Scope, receive: Receive, send: Send) -> None:
        """Leave CORS to a server inside a sandbox."""
        has_host = hosts is not None and scope["type"] == "http" and hosts.covers(scope["headers"])
        await (app if has_host or is_foreign(scope.get("path", "")) else cors)(scope, receive, send)

    return allow_ours


def _finish(
    headers: Sequence[tuple[bytes, bytes]], request_id: str, *, is_ours: bool = True
) -> list[tuple[bytes, bytes]]:
    """Add our headers to an answer. `ports/headers.py` has made the answers of servers inside sandboxes safe."""
    if not is_ours:
        return [*headers, (b"x-request-id", request_id.encode())]
    finished = [*headers, (b"x-request-id", request_id.encode()), *_SAFE]
    if not any(name == b"content-security-policy" for name, _ in headers):
        finished.append(_NOTHING_ACTIVE)
    return finished


def _write_line(scope: Scope, request_id: str, status: int, seconds: float) -> None:
    if not _log.isEnabledFor(logging.INFO):
        return
    state = scope["state"]
    fields = {
        "request_id": request_id,
        "method": scope.get("method", "WEBSOCKET"),
        "route": state.get("route", "-"),
        "status": status,
        "duration_ms": round(seconds * 1000, 3),
        "subject": state.get("subject", "-"),
    }
    if "route" not in state and not state.get("is_foreign"):
        fields["path"] = show_path(scope["path"])
    sandbox_id = scope.get("path_params", {}).get("sandbox_id", "")
    if SANDBOX_ID.fullmatch(sandbox_id):
        fields["sandbox_id"] = sandbox_id
    if "trace_id" in state:
        fields["trace_id"] = state["trace_id"]
    _log.info("request.finished", extra=fields)


def show_path(path: str) -> str:
    """Write a path that no route knows: short, without credentials, and percent-encoded so that it forges no field."""
    # Credentials go before the rest is cut: half of one would not be found.
    shown = quote(_CREDENTIAL.sub(r"\1***", path), safe="/:@!$&'()*+,;=", errors="replace")
    return shown if len(shown) <= _PATH_CHARACTERS else f"{shown[:_PATH_CHARACTERS]}***"
