"""MCP on the service's own port: `/mcp`, and `/sse` with `/messages/`, under the same keys, rates and limits.

The library for the protocol is imported in a thread when the first client comes.
"""

from __future__ import annotations

import contextlib
from importlib import import_module
from typing import TYPE_CHECKING, Any

import anyio
from anyio import to_thread

from warren.domain.records import Scope as Grant
from warren.gateway.api.auth import read_secret
from warren.gateway.api.bodies import check_depth, count_large, read_body
from warren.gateway.api.dispatch import ANY, Dispatcher
from warren.gateway.api.operations import Answer, Operation
from warren.gateway.api.websockets import Connections, check_origin
from warren.gateway.middleware.rewrites import KEYS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from warren.core.service import Service
    from warren.domain.records import Caller
    from warren.gateway.api.auth import Auth
    from warren.gateway.api.body_memory import BodyMemory
    from warren.gateway.api.operations import Call
    from warren.settings import Settings


class Mcp:
    """Answers the addresses of MCP; passes all others on."""

    def __init__(
        self, service: Service, settings: Settings, auth: Auth, otherwise: ASGIApp, *, body_memory: BodyMemory
    ) -> None:
        self._service = service
        self._settings = settings
        self._body_memory = body_memory
        self._lock = anyio.Lock()
        self._streams = Connections(what="streams of events")
        self._transports: Any = None
        operations = build_operations(self, with_sse=settings.mcp.sse) if settings.mcp.enabled else ()
        self._routes = Dispatcher(operations, service, settings, auth, otherwise, body_memory=body_memory, prefix="")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, or pass on."""
        await self._routes(scope, receive, send)

    def build(self, call: Call, transport: str) -> ASGIApp:
        """Build the application that answers a request with a method of `mcp_server.http.Transports`."""
        # WHY: a foreign page in a local browser can send requests, although it cannot read the answers.
        check_origin(call.scope["headers"], self._settings.serve.cors_origins)
        # WHY: the server keeps spaces around values, and the protocol compares values.
        call.scope["headers"] = [(name, value.strip(b" \t")) for name, value in call.scope["headers"]]
        if call.scope["state"].get("has_key_in_path"):
            # The address for messages that the client gets then has its key.
            call.scope["root_path"] = f"{KEYS}{read_secret(call.scope['headers'])}"

        async def serve(scope: Scope, receive: Receive, send: Send) -> None:
            serve_it = getattr(await self._open(), transport)
            with self._held(call.caller, scope):
                if scope["method"] == "POST":
                    receive = await _read_whole(scope, receive, self._settings.serve.body_bytes)
                await serve_it(call.caller, scope, receive, send)

        return serve

    def _held(self, caller: Caller, scope: Scope) -> contextlib.AbstractContextManager[None]:
        """Count a body's memory, or an open stream, while the request lasts."""
        owner = caller.principal.owner
        if scope["method"] == "GET":
            return self._streams.one(owner)
        size = count_large(scope, self._settings.serve.body_bytes)
        return self._body_memory.hold(owner, size) if size else contextlib.nullcontext()

    async def _open(self) -> Any:
        """Import the library in a thread: it takes a second, in which other requests are served."""
        async with self._lock:
            if self._transports is None:
                module = await to_thread.run_sync(import_module, "warren.mcp_server.http")
                transports = module.Transports(self._service, self._settings)
                await transports.open()
                self._transports = transports
        return self._transports


async def _read_whole(scope: Scope, receive: Receive, limit: int) -> Receive:
    """Read and check the body before the library parses it; return a `receive` that replays it."""
    body = await read_body(scope, receive, limit)
    check_depth(body)
    is_given = False

    async def give() -> Message:
        nonlocal is_given
        if is_given:
            return await receive()
        is_given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return give


def build_operations(mcp: Mcp, *, with_sse: bool) -> Iterator[Operation]:
    """Yield the operations. All need the scope `read`; tools that run something check for `run` themselves."""

    def declare(method: str, path: str, transport: str, content_type: str = "application/json") -> Operation:
        async def handle(call: Call) -> ASGIApp:
            return mcp.build(call, transport)

        answers = (Answer("As the protocol has it.", content_type=content_type),)
        return Operation("MCP", handle, "MCP", method, path, Grant.READ, is_passed_on=True, answers=answers)

    # WHY: other MCP servers have a slash at the end, so people type one, and not every client follows a redirect.
    for slash in ("", "/"):
        yield declare(ANY, f"/mcp{slash}", "serve")
        if with_sse:
            yield declare("GET", f"/sse{slash}", "serve_sse", "text/event-stream")
    if with_sse:
        yield declare("POST", "/messages/", "take_message")
