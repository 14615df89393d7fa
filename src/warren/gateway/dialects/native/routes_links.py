"""The native API: shared links, which open one thing of a sandbox without a key until they expire."""

from __future__ import annotations

from typing import TYPE_CHECKING

from warren.core.shared_links.shared_links import NewSharedLink
from warren.core.shared_links.signing import Kind
from warren.domain.records import Scope
from warren.gateway.api.operations import Answer, Routes, json_reply
from warren.gateway.api.shared_links import build_url
from warren.gateway.dialects.native.common import sandbox_id
from warren.gateway.dialects.native.schemas_links import CreateLink, LinkShown

if TYPE_CHECKING:
    from warren.gateway.api.operations import Call, Reply

_SECRET = (b"cache-control", b"no-store")


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
