"""Operations as values: the route and the documentation of each come from the same declaration.

No framework's routes (ADR 19): the dispatcher knows the caller and the size before it parses a body, and names the
parameter that an unknown one was meant to be. A routes module has `routes`, which its handlers join by a decorator;
`app.py` serves them.
"""

from __future__ import annotations

import re
from dataclasses import KW_ONLY, dataclass, field
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

import orjson

from warren.domain.errors import NotFound

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from pydantic import BaseModel
    from starlette.types import ASGIApp, Receive, Scope, Send

    from warren.core.service import Service
    from warren.domain.records import Caller
    from warren.domain.records import Scope as Grant
    from warren.settings import Settings

    Handler = Callable[["Call"], Awaitable[ASGIApp]]

M = TypeVar("M")
P = ParamSpec("P")
H = TypeVar("H", bound="Handler")

SANDBOX_ID = re.compile(r"sbx_[a-z0-9]{8,40}")
"""The id of a sandbox, in the address of any dialect."""

_DEPTH_SHOWN = 100


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer of an operation."""

    description: str
    model: Any = None
    """A pydantic model, or a list of one; None when there is no body, or none of JSON."""
    _: KW_ONLY
    status: int = 200
    content_type: str = "application/json"
    headers: Mapping[str, str] = field(default_factory=dict)
    """Name -> description."""
    example: Any = None


@dataclass(frozen=True, slots=True)
class Operation:
    """One method of one path: input, required scope, handler, answers."""

    tag: str
    handler: Handler
    summary: str
    method: str
    """An HTTP method; `*` for all methods that no other operation has; or `WEBSOCKET`, whose handler returns an
    application that accepts the connection and speaks `websocket.*`."""
    path: str
    """Below `/api/v1`, with its parameters in braces."""
    grant: Grant | None
    """The scope that a key needs; None: no key is needed."""
    _: KW_ONLY
    description: str = ""
    body: type[BaseModel] | None = None
    body_is_optional: bool = False
    body_limit: Callable[[Settings], int] | None = None
    """Finds the size limit of the body in the settings; None: `serve.body_bytes`."""
    raw_body: str | None = None
    """The content type of a body that the handler streams itself."""
    query: type[BaseModel] | None = None
    is_passed_on: bool = False
    """Whether the handler forwards query and body unread."""
    headers: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Request headers that it reads: name -> JSON schema with a description."""
    answers: tuple[Answer, ...] = ()
    errors: tuple[int, ...] = ()
    """Statuses of problems, beyond those of every operation."""
    example: Any = None
    """An example of a body."""

    @property
    def is_stream(self) -> bool:
        """Whether every answer is a stream of events."""
        return all(answer.content_type == "text/event-stream" for answer in self.answers)


def _declare(
    make: Callable[Concatenate[str, Handler, str, str, str, P], Operation],
) -> Callable[Concatenate[Routes, str, P], Callable[[H], H]]:
    """Return the decorator of handlers; it takes what an operation takes, with the same types."""

    def add(routes: Routes, route: str, /, *args: P.args, **declared: P.kwargs) -> Callable[[H], H]:
        method, *paths = route.split()
        declared.setdefault("query", routes.query)

        def keep(handler: H) -> H:
            summary = (handler.__doc__ or "").removesuffix(".")
            routes.extend(make(routes.tag, handler, summary, method, path, *args, **declared) for path in paths)
            return handler

        return keep

    return add


class Routes(list[Operation]):
    """The operations of one module, in the order of their handlers.

    `@routes.add("POST /sandboxes", Scope.RUN, …)` makes a handler one, or several with `"POST /first /second"`. The
    first line of the handler's docstring is the summary in the documentation.
    """

    def __init__(self, tag: str, *, query: type[BaseModel] | None = None) -> None:
        super().__init__()
        self.tag = tag
        self.query = query
        """The model of the queries of operations that name none."""

    add = _declare(Operation)


class Call:
    """One request as its handler sees it: caller, parameters, body, query."""

    __slots__ = ("_body", "_query", "caller", "params", "receive", "scope", "service", "settings")

    def __init__(self, service: Service, settings: Settings, caller: Caller, scope: Scope, receive: Receive) -> None:
        self.service = service
        self.settings = settings
        self.caller = caller
        self.scope = scope
        self.receive = receive
        self.params: Mapping[str, str] = scope["path_params"]

    def set_input(self, body: object, query: object) -> None:
        """Keep body and query, validated as the operation's models."""
        self._body = body
        self._query = query

    def body(self, model: type[M]) -> M:
        """Return the validated body."""
        assert isinstance(self._body, model)
        return self._body

    def query(self, model: type[M]) -> M:
        """Return the validated query."""
        assert isinstance(self._query, model)
        return self._query

    def header(self, name: bytes) -> str | None:
        """Return a header of the request; the name in lower case."""
        for each, value in self.scope["headers"]:
            if each == name:
                return str(value.decode("latin-1"))
        return None

    def id(self, name: str, pattern: re.Pattern[str], what: str) -> str:
        """Return a parameter of the path that is an id. Raises NotFound for a malformed one."""
        value = self.params[name]
        if pattern.fullmatch(value) is None:
            raise NotFound(f"there is no such {what}")
        return value


class Reply:
    """A complete answer: status, headers, bytes. Costs less than Starlette's `Response`."""

    __slots__ = ("body", "headers", "status")

    def __init__(self, body: bytes, status: int = 200, headers: tuple[tuple[bytes, bytes], ...] = ()) -> None:
        self.body = body
        self.status = status
        self.headers = headers

    async def __call__(self, _scope: Scope, _receive: Receive, send: Send) -> None:
        """Send it."""
        headers = [*self.headers]
        if self.status != 204:
            headers.append((b"content-length", b"%d" % len(self.body)))
        await send({"type": "http.response.start", "status": self.status, "headers": headers})
        await send({"type": "http.response.body", "body": self.body})


def dump(value: object) -> bytes:
    """Write JSON. Values of a program that JSON cannot hold (lone surrogates, huge integers) are replaced."""
    try:
        return orjson.dumps(value)
    except TypeError:
        return orjson.dumps(_scrub(value, 0))


def _scrub(value: object, depth: int) -> object:
    if depth > _DEPTH_SHOWN:
        return None
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, dict):
        return {str(_scrub(str(name), depth)): _scrub(each, depth + 1) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_scrub(each, depth + 1) for each in value]
    if isinstance(value, int) and not isinstance(value, bool) and not -(1 << 63) <= value < 1 << 63:
        return str(value)
    return value


def json_reply(value: object, status: int = 200, *headers: tuple[bytes, bytes]) -> Reply:
    """Build an answer of JSON."""
    return Reply(dump(value), status, ((b"content-type", b"application/json"), *headers))


NO_CONTENT = Reply(b"", 204)
