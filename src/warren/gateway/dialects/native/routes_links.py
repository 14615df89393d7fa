"""The native API: shared links, which open one thing of a sandbox without a key until they expire."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal, Self

from pydantic import BeforeValidator, ConfigDict, Field, JsonValue, StringConstraints, model_validator

from warren.core.shared_links.shared_links import NewSharedLink
from warren.core.shared_links.signing import Kind
from warren.domain.records import Scope
from warren.gateway.api.operations import Answer, Routes, json_reply
from warren.gateway.api.shared_links import build_url
from warren.gateway.dialects.native.answers import Shown, Time
from warren.gateway.dialects.native.common import sandbox_id
from warren.gateway.dialects.native.schemas import Body, KernelName, Port, as_whole

if TYPE_CHECKING:
    from warren.gateway.api.operations import Call, Reply

_SECRET = (b"cache-control", b"no-store")
_DAY_S = 86_400
_NAMED = {Kind.PORT: "port", Kind.FILE: "path", Kind.TERMINAL: "terminal"}

MaxBytes = Annotated[int, Field(ge=0, le=1 << 50), BeforeValidator(as_whole)]
LinkPath = Annotated[str, StringConstraints(pattern=r"^[^\x00]{0,1023}[^\x00/]$")]


def _only(kind: str, *required: str, **values: JsonValue) -> JsonValue:
    """Build the schema of one kind of link; fields that are not named are null."""
    absent: dict[str, JsonValue] = {name: {"type": "null"} for name in ("port", "path", "terminal", "max_bytes")}
    properties: dict[str, JsonValue] = {**absent, "method": {"const": "GET"}, "kind": {"const": kind}, **values}
    return {"properties": properties, "required": ["kind", *required]}


_ANY: JsonValue = {"not": {"type": "null"}}
_KINDS: list[JsonValue] = [
    _only("port", "port", port=_ANY),
    _only("file", "path", path=_ANY),
    _only("file", "path", "method", path=_ANY, method={"const": "PUT"}, max_bytes={}),
    _only("terminal", terminal={}),
]


class CreateLink(Body):
    """What to share: a port, a file or a terminal of the sandbox."""

    model_config = ConfigDict(json_schema_extra={"oneOf": _KINDS})

    kind: Literal["port", "file", "terminal"] = Field(description="What it leads to.")
    port: Port | None = Field(default=None, description="Of a port: where the server listens.")
    path: LinkPath | None = Field(default=None, description="Of a file: exactly which.")
    method: Literal["GET", "PUT"] = Field(default="GET", description="Of a file: to read it, or to write it.")
    max_bytes: MaxBytes | None = Field(default=None, description="Of a file to write: how large it may be.")
    terminal: KernelName | None = Field(default=None, description="Of a terminal: its name, `main` unless given.")
    expires_in_seconds: Annotated[float, Field(ge=1, le=366 * _DAY_S)] = Field(
        default=3600, description="How long it is good for; the service may allow less."
    )

    @model_validator(mode="after")
    def _check(self) -> Self:
        """Have exactly what the kind needs."""
        for kind, name in _NAMED.items():
            given = getattr(self, name) is not None
            if given and kind != self.kind:
                raise ValueError(f"{name} is for a link of the kind {kind}")
            if not given and kind == self.kind and kind is not Kind.TERMINAL:
                raise ValueError(f"a link of the kind {kind} needs {name}")
        if self.kind != "file" and self.method != "GET":
            raise ValueError("method is for a link of the kind file: through the others all of them pass")
        if self.max_bytes is not None and (self.kind, self.method) != ("file", "PUT"):
            raise ValueError("max_bytes is for a link to write a file: kind file, method PUT")
        return self


class LinkShown(Shown):
    """A link, as it is shown this once."""

    id: str = Field(description="Names it in the audit record; it opens nothing.")
    url: str = Field(description="The path below this service's address. It needs no key: treat it as one.")
    kind: Literal["port", "file", "terminal"]
    sandbox_id: str
    expires_at: Time = Field(description="When it ends.")


routes = Routes("Links")


@routes.add(
    "POST /sandboxes/{sandbox_id}/links",
    Scope.READ,
    description="The link needs no key: its holder does what it allows in your name, until it expires, your "
    "key is revoked or the sandbox is deleted. To share more than a file to read needs the scope `run`.",
    body=CreateLink,
    example={"kind": "port", "port": 5000, "expires_in_seconds": 3600},
    answers=(Answer("The link, which is shown this once.", LinkShown, status=201),),
    errors=(404,),
)
async def create_link(call: Call) -> Reply:
    """Share a port, a file or a terminal."""
    asked = call.body(CreateLink)
    kind = Kind(asked.kind)
    target = {Kind.PORT: str(asked.port), Kind.FILE: asked.path or "", Kind.TERMINAL: asked.terminal or "main"}[kind]
    new = NewSharedLink(
        kind=kind,
        target=target,
        method=asked.method if kind is Kind.FILE else "*",
        expires_in_s=asked.expires_in_seconds,
        max_bytes=asked.max_bytes,
    )
    claims, token = await call.service.sharing.create(call.caller, sandbox_id(call), new)
    shown = LinkShown.render(claims, id=claims.link_id, url=build_url(claims, token))
    return json_reply(shown, 201, _SECRET)
