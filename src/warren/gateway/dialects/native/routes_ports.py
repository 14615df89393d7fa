"""The native API: servers inside sandboxes, reached by HTTP and WebSocket."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from urllib.parse import quote

from starlette.exceptions import HTTPException

from warren.domain.errors import Forbidden, NotFound
from warren.domain.records import Scope
from warren.gateway.api.dispatch import ANY, PREFIX, WEBSOCKET
from warren.gateway.api.operations import Answer, Reply, Routes
from warren.gateway.dialects.native.common import sandbox_id
from warren.gateway.ports.headers import Mount, is_service_worker

if TYPE_CHECKING:
    from starlette.types import ASGIApp

    from warren.gateway.api.operations import Call

_PATH = "/sandboxes/{sandbox_id}/ports/{port}"
_RAW = re.compile(rb"/api/v1/sandboxes/[^/]+/ports/[^/]+(/.*)", re.DOTALL)
_PORT = re.compile(r"[1-9][0-9]{0,4}")
_REFUSED = frozenset({"CONNECT", "TRACE"})
_ALLOW = (b"GET", b"HEAD", b"POST", b"PUT", b"PATCH", b"DELETE", b"OPTIONS")

_ABOUT = (
    "Any method, streamed both ways; a stopped sandbox is resumed. The server gets your request without what "
    "authenticated it: send `X-Warren-Authorization` for it to have an `Authorization`. Its address is in "
    "`X-Forwarded-Prefix`, `X-Forwarded-Host` and `X-Forwarded-Proto`. WebSockets are opened here too. For a browser, "
    "make a link."
)

routes = Routes("Ports")


@routes.add(
    f"{ANY} {_PATH}/{{path:path}}",
    Scope.RUN,
    description=_ABOUT,
    is_passed_on=True,
    answers=(Answer("Whatever the server answers, with its status.", content_type="*/*"),),
    errors=(404, 405, 409, 502),
)
async def proxy_port(call: Call) -> ASGIApp:
    """Ask a server inside a sandbox."""
    # Not above, as its like below: a command that runs one program and ends would pay for it.
    from warren.gateway.ports.http import proxy_request

    scope, mount = call.scope, _mount(call)
    if scope["state"].get("has_key_in_path"):
        raise Forbidden("a page at this address could read the key in it: send the key as a header, or make a link")
    if scope["method"] in _REFUSED:
        raise HTTPException(405, headers={"Allow": b", ".join(_ALLOW).decode()})
    if is_service_worker(scope["headers"]) and not mount.has_host:
        raise Forbidden("no service worker is served from a sandbox: it would answer for other addresses of ours too")
    if mount.gives_no_origin and call.header(b"origin") == "null" and call.header(b"access-control-request-method"):
        return _allow_own_pages(call)
    return proxy_request(call, sandbox_id(call), mount, _target(call))


@routes.add(
    f"{WEBSOCKET} {_PATH}/{{path:path}}",
    Scope.RUN,
    is_passed_on=True,
    answers=(Answer("It is open.", status=101),),
    errors=(404, 409, 502),
)
async def connect_port(call: Call) -> ASGIApp:
    """Open a WebSocket to a server inside a sandbox."""
    from warren.gateway.ports.websocket import proxy_websocket

    return proxy_websocket(call, sandbox_id(call), _mount(call), _target(call))


@routes.add(
    f"{ANY} {_PATH}",
    Scope.RUN,
    is_passed_on=True,
    answers=(Answer("It is one slash further.", status=308),),
    errors=(404,),
)
async def redirect_port(call: Call) -> ASGIApp:
    """Find the first page of a server inside a sandbox."""
    query = call.scope["query_string"]
    return Reply(b"", 308, ((b"location", b"./%d/" % _port(call) + (b"?" + query if query else b"")),))


def _mount(call: Call) -> Mount:
    entry = call.scope["state"].get("link")
    takes_tokens = call.service.tokens is not None
    if entry is not None:
        return Mount(entry.prefix, _port(call), is_link=True, has_host=entry.has_host, takes_tokens=takes_tokens)
    return Mount(f"{PREFIX}/sandboxes/{sandbox_id(call)}/ports/{_port(call)}", _port(call))


def _port(call: Call) -> int:
    text = call.params["port"]
    if _PORT.fullmatch(text) is None or int(text) > 65_535:
        raise NotFound("there is no such port: they are numbers from 1 to 65535")
    return int(text)


def _target(call: Call) -> bytes:
    """Return the rest of the address as it was sent, byte for byte: it means something to the server inside only."""
    raw: bytes = call.scope.get("raw_path") or quote(call.scope["path"]).encode()
    match = _RAW.fullmatch(raw)
    if match is None:
        raise NotFound("there is nothing at this address")
    query = call.scope["query_string"]
    return match[1] + (b"?" + query if query else b"")


def _allow_own_pages(call: Call) -> Reply:
    """Answer the preflight of a page that has no origin, because we gave it none: it may."""
    headers = [
        (b"access-control-allow-origin", b"null"),
        (b"access-control-allow-methods", b", ".join(_ALLOW)),
        (b"access-control-max-age", b"600"),
        (b"vary", b"origin"),
    ]
    asked = call.header(b"access-control-request-headers")
    if asked:
        headers.append((b"access-control-allow-headers", asked.encode("latin-1")))
    return Reply(b"", 204, tuple(headers))
