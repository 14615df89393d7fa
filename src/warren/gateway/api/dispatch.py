"""Dispatcher: from a request to the handler of its operation, through authentication, rate, scope and parsing."""

from __future__ import annotations

import contextlib
import functools
import re
from typing import TYPE_CHECKING, Any

from anyio import to_thread
from pydantic import BaseModel, ConfigDict
from starlette.exceptions import HTTPException
from starlette.routing import compile_path

from warren.domain.records import Caller
from warren.gateway.api.auth import ANONYMOUS, check_scope
from warren.gateway.api.bodies import ClientLeft, check_length, count_large, parse_body, parse_query, read_body
from warren.gateway.api.operations import Call, Reply
from warren.gateway.api.problems import rate_headers
from warren.gateway.api.shared_links import ROUTE
from warren.gateway.api.websockets import Connections, check_origin, serve_while_allowed, take_key

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from warren.core.concurrency.admission import Rate
    from warren.core.service import Service
    from warren.domain.records import Principal
    from warren.gateway.api.auth import Auth
    from warren.gateway.api.body_memory import BodyMemory
    from warren.gateway.api.operations import Operation
    from warren.gateway.api.shared_links import Entry
    from warren.settings import Settings

PREFIX = "/api/v1"
WEBSOCKET = "WEBSOCKET"
"""The method of an operation that is a WebSocket."""
ANY = "*"
"""The method of an operation that takes all methods that no other operation of its path has."""
_LEFT = Reply(b"", 499)
_SERVED = frozenset({"http", "websocket"})
_LONG = 4 << 20
"""A longer body is parsed in a thread."""
_OF_BROWSERS = frozenset({b"origin", b"sec-fetch-site"})
_FREE = contextlib.nullcontext()


class _NoQuery(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Dispatcher:
    """An ASGI application of operations. Unknown paths go to `otherwise`."""

    def __init__(
        self,
        operations: Iterable[Operation],
        service: Service,
        settings: Settings,
        auth: Auth,
        otherwise: ASGIApp,
        *,
        body_memory: BodyMemory,
        prefix: str = PREFIX,
        parse_body: Callable[[type[BaseModel], bytes], BaseModel] = parse_body,
        parse_query: Callable[[type[BaseModel], bytes], BaseModel] = parse_query,
    ) -> None:
        self._service = service
        self._settings = settings
        self._auth = auth
        self._otherwise = otherwise
        self._prefix = prefix
        self._parse_body = parse_body
        self._parse_query = parse_query
        self._body_memory = body_memory
        self._connections = Connections()
        self._table = _build_table(operations, prefix)

    def knows(self, path: str) -> bool:
        """Whether an operation has this path."""
        return any(pattern.match(path) for pattern, _ in self._table)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Find the operation and answer with it."""
        if scope["type"] in _SERVED and scope["path"].startswith(self._prefix):
            path = scope["path"]
            for pattern, methods in self._table:
                match = pattern.match(path)
                if match is not None and not _hides_slash(scope, match):
                    scope["path_params"] = match.groupdict()
                    if scope["type"] == "http":
                        await self._serve(_choose(methods, scope["method"]), scope, receive, send)
                    else:
                        await self._serve_websocket(_choose(methods, WEBSOCKET), scope, receive, send)
                    return
        await self._otherwise(scope, receive, send)

    async def _serve(self, operation: Operation, scope: Scope, receive: Receive, send: Send) -> None:
        caller = await self._admit(operation, scope, scope["headers"])
        rate = scope["state"].get("rate")
        if rate is not None:
            send = _with_rate(send, rate)
        principal = caller.principal
        size = 0 if operation.body is None else count_large(scope, self._limit(operation))
        try:
            with self._body_memory.hold(principal.owner, size) if size else _FREE:
                body, query = await self._read(operation, scope, receive)
                call = Call(self._service, self._settings_for(scope), caller, scope, receive)
                call.set_input(body, query)
                reply = await operation.handler(call)
        except ClientLeft:
            reply = _LEFT
        await reply(scope, receive, send)

    async def _serve_websocket(self, operation: Operation, scope: Scope, receive: Receive, send: Send) -> None:
        headers = take_key(scope)
        if "link" not in scope["state"]:
            # The token in the link authorises, whatever page opens it.
            check_origin(headers, self._settings.serve.cors_origins)
        caller = await self._admit(operation, scope, headers)
        with self._connections.one(caller.principal.owner), contextlib.suppress(ClientLeft):
            _, query = await self._read(operation, scope, receive)
            call = Call(self._service, self._settings_for(scope), caller, scope, receive)
            call.set_input(None, query)
            app = await operation.handler(call)
            await serve_while_allowed(app, scope["state"]["ask_again"], scope, receive, send)

    async def _admit(self, operation: Operation, scope: Scope, headers: Iterable[tuple[bytes, bytes]]) -> Caller:
        """Authenticate the caller, and check rate and scope."""
        state = scope["state"]
        link: Entry | None = state.get("link")
        state["route"] = operation.path if link is None else ROUTE
        client = scope.get("client")
        address, request_id = client[0] if client else "", state["request_id"]
        if operation.grant is None:
            return Caller(principal=ANONYMOUS, request_id=request_id, address=address)
        identify: Callable[[], Awaitable[Principal]]
        if link is None:
            identify = functools.partial(
                self._auth.identify, headers, address=address, request_id=request_id, scheme=scope["scheme"]
            )
        else:
            identify = link.identify
        principal = await identify()
        # Long answers ask again: a key may be revoked meanwhile.
        state["ask_again"] = identify
        state["subject"] = principal.subject
        rate = await self._service.admission.check_rate(principal)
        if rate is not None:
            state["rate"] = rate
        check_scope(principal, operation.grant)
        link_id = "" if link is None else link.claims.link_id
        return Caller(principal=principal, request_id=request_id, address=address, link_id=link_id)

    def _limit(self, operation: Operation) -> int:
        """Return the size limit of a body."""
        settings = self._settings
        return settings.serve.body_bytes if operation.body_limit is None else operation.body_limit(settings)

    def _settings_for(self, scope: Scope) -> Settings:
        link: Entry | None = scope["state"].get("link")
        return self._settings if link is None else link.limit(self._settings)

    async def _read(self, operation: Operation, scope: Scope, receive: Receive) -> tuple[Any, Any]:
        body: Any = None
        if operation.body is not None:
            kind = _check_is_json(scope)
            raw = await read_body(scope, receive, self._limit(operation))
            has_body = bool(raw) or not operation.body_is_optional
            if raw and not kind:
                _check_no_page(scope)
            if len(raw) > _LONG:
                # WHY: a body of a hundred megabytes takes seconds, and would block all other requests.
                body = await self._parse_long(operation.body, raw)
            else:
                body = self._parse_body(operation.body, raw) if has_body else operation.body()
        elif operation.raw_body is not None:
            check_length(scope, self._settings_for(scope).serve.upload_bytes)
        if operation.is_passed_on or (operation.query is None and not scope["query_string"]):
            return body, None
        return body, self._parse_query(operation.query or _NoQuery, scope["query_string"])

    async def _parse_long(self, model: type[BaseModel], raw: bytes) -> Any:
        """Parse a body in a thread. The error of a refused body holds no frame, and so no reference to the body."""
        parsed = await to_thread.run_sync(_parse_apart, self._parse_body, model, raw, limiter=self._body_memory.reading)
        try:
            if isinstance(parsed, Exception):
                raise parsed
            return parsed
        finally:
            del parsed, raw


def _parse_apart(parse: Callable[[type[BaseModel], bytes], Any], model: type[BaseModel], raw: bytes) -> Any:
    """Return the parsed body, or the exception without its frames."""
    try:
        return parse(model, raw)
    except Exception as error:  # noqa: BLE001 - raised again where it is awaited
        each: BaseException | None = error
        while each is not None:
            each.__traceback__ = None
            each = each.__cause__ or each.__context__
        return error


def _build_table(operations: Iterable[Operation], prefix: str) -> list[tuple[re.Pattern[str], dict[str, Operation]]]:
    by_path: dict[str, dict[str, Operation]] = {}
    for operation in operations:
        by_path.setdefault(operation.path, {})[operation.method] = operation
    # WHY: a file name may hold a line feed, which a dot matches only with DOTALL.
    return [
        (re.compile(compile_path(prefix + path)[0].pattern, re.DOTALL), methods) for path, methods in by_path.items()
    ]


def _choose(methods: dict[str, Operation], method: str) -> Operation:
    operation = methods.get(method)
    if operation is not None:
        return operation
    if method == WEBSOCKET:
        raise HTTPException(404)
    if ANY in methods:
        return methods[ANY]
    if method == "GET" and WEBSOCKET in methods:
        raise HTTPException(426, headers={"Upgrade": "websocket", "Connection": "Upgrade"})
    # A WebSocket begins as a GET.
    known = {"GET" if each == WEBSOCKET else each: operation for each, operation in methods.items()}
    if "GET" in methods and not methods["GET"].is_stream:
        known["HEAD"] = methods["GET"]
    if method not in known:
        raise HTTPException(405, headers={"Allow": ", ".join(sorted(known))})
    return known[method]


def _hides_slash(scope: Scope, match: re.Match[str]) -> bool:
    """Whether a slash before the name of a file is written as %2F: a proxy's rules for paths would not see it."""
    raw = scope.get("raw_path") or b""
    if b"%" not in raw or b"%2f" not in raw.lower():
        return False
    # The one parameter that has slashes is the last: a file's name, or the path at a server inside.
    params = match.groupdict()
    last = next((name for name in reversed(params) if "/" in params[name]), None)
    fixed = match.start(last) if last is not None else len(scope["path"])
    segments = raw.lower().split(b"/", scope["path"].count("/", 0, fixed))
    return any(b"%2f" in segment for segment in (segments if last is None else segments[:-1]))


def _check_is_json(scope: Scope) -> bytes:
    """Return the type of a body, where the client names it. Raises for another one than JSON."""
    kind = b""
    for name, value in scope["headers"]:
        if name == b"content-type":
            kind = value.partition(b";")[0].strip().lower()
            if kind != b"application/json":
                raise HTTPException(415, "send JSON, with `Content-Type: application/json`")
    return kind


def _check_no_page(scope: Scope) -> None:
    """Raise for a body without a type that a browser sends: a page of any site can make it do so, unasked."""
    if any(name in _OF_BROWSERS for name, _ in scope["headers"]):
        raise HTTPException(415, "send JSON, with `Content-Type: application/json`")


def _with_rate(send: Send, rate: Rate) -> Send:
    extra = [(name.lower().encode(), value.encode()) for name, value in rate_headers(rate).items()]

    async def add_headers(message: Message) -> None:
        if message["type"] == "http.response.start":
            message["headers"] = [*message["headers"], *extra]
        await send(message)

    return add_headers
