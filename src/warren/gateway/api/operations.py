"""What the APIs are made of: each operation as a value, from which its route and its documentation are made.

Not a framework's routes (ADR 19): who asks, and how much, is known here before a body is parsed, and of an unknown
parameter it is said which one was meant. A routes module has a tuple `OPERATIONS`; `app.py` serves them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

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

M = TypeVar("M")

SANDBOX_ID = re.compile(r"sbx_[a-z0-9]{8,40}")
"""What the id of a sandbox looks like, in the address of any dialect."""

_DEPTH_SHOWN = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """One way in which an operation answers."""

    status: int = 200
    description: str
    model: Any = None
    """A pydantic model, or a list of one; None when there is no body, or none of JSON."""
    content_type: str = "application/json"
    headers: Mapping[str, str] = field(default_factory=dict)
    """A header's name and what it says."""
    example: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One method of one path: what it takes, who may, what it answers."""

    method: str
    """Of HTTP, `*` being all that no other operation has; or `WEBSOCKET`, and then the handler returns an application
    that accepts it and speaks `websocket.*`."""
    path: str
    """Below `/api/v1`, with its parameters in braces."""
    handler: Callable[[Call], Awaitable[ASGIApp]]
    grant: Grant | None
    """What a key must be good for; None: anybody may, without one."""
    tag: str
    summary: str
    description: str = ""
    body: type[BaseModel] | None = None
    body_is_optional: bool = False
    body_limit: Callable[[Settings], int] | None = None
    """Where the largest body is in the settings; None: where it is for most."""
    raw_body: str | None = None
    """The content type of a body that the handler reads itself, piece by piece."""
    query: type[BaseModel] | None = None
    is_passed_on: bool = False
    """Whether its query and body are for somebody else, to whom the handler hands them as they are."""
    headers: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Request headers that mean something here: name -> JSON schema with a description."""
    answers: tuple[Answer, ...] = ()
    errors: tuple[int, ...] = ()
    """Statuses of problems besides those that every operation has."""
    example: Any = None
    """A body to show."""

    @property
    def is_stream(self) -> bool:
        """Whether it answers with nothing but events, for as long as there are any."""
        return all(answer.content_type == "text/event-stream" for answer in self.answers)


class Call:
    """One request on its way to a handler: who asks, for what, and with what."""

    __slots__ = ("_body", "_query", "caller", "params", "receive", "scope", "service", "settings")

    def __init__(self, service: Service, settings: Settings, caller: Caller, scope: Scope, receive: Receive) -> None:
        self.service = service
        self.settings = settings
        self.caller = caller
        self.scope = scope
        self.receive = receive
        self.params: Mapping[str, str] = scope["path_params"]

    def set_input(self, body: object, query: object) -> None:
        """Keep what was read of the request, as the operation's models."""
        self._body = body
        self._query = query

    def body(self, model: type[M]) -> M:
        """Return the body, which has been read as the operation's model."""
        assert isinstance(self._body, model)
        return self._body

    def query(self, model: type[M]) -> M:
        """Return the query, which has been read as the operation's model."""
        assert isinstance(self._query, model)
        return self._query

    def header(self, name: bytes) -> str | None:
        """Return a header of the request; the name in lower case."""
        for each, value in self.scope["headers"]:
            if each == name:
                return str(value.decode("latin-1"))
        return None

    def id(self, name: str, pattern: re.Pattern[str], what: str) -> str:
        """Return a parameter of the path that is an id. Raises NotFound for what cannot be one."""
        value = self.params[name]
        if pattern.fullmatch(value) is None:
            raise NotFound(f"there is no such {what}")
        return value


class Reply:
    """A whole answer: its status, headers and bytes. Costs less than Starlette's, and does no more."""

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
    """Write JSON, also of what a program said that JSON cannot hold: half characters, endless numbers."""
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
