"""Requests by a shared link: rewritten to requests for the file, port or terminal of the link, as its creator.

The token is in the path, so that relative links of a page keep it. It is a credential: no log has it, and the route
in logs and metrics is `/s/…`.
"""

from __future__ import annotations

import functools
import os
import posixpath
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import quote, unquote_to_bytes

from starlette.exceptions import HTTPException

from warren.core.shared_links.signing import Kind, peek_kind
from warren.domain.errors import NotFound
from warren.gateway.api.operations import Reply

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from starlette.types import Scope

    from warren.core.shared_links.shared_links import SharedLinks
    from warren.core.shared_links.signing import Claims
    from warren.domain.records import Principal
    from warren.settings import Settings

LINKS = "/s/"
ROUTE = "/s/…"
_PORTS = re.compile(r"/api/v1/sandboxes/[^/]+/ports/")
_METHODS = {"GET": ("GET", "HEAD"), "PUT": ("PUT",)}


@dataclass(frozen=True, slots=True)
class Entry:
    """The link of a request; in the scope's state under `link`."""

    claims: Claims
    prefix: str
    """The path before the link's target."""
    identify: Callable[[], Awaitable[Principal]]
    """Returns the link's creator again; raises once the link is no longer valid."""
    has_host: bool = False
    """Whether its target has a host of its own."""

    def limit(self, settings: Settings) -> Settings:
        """Return the settings with no more allowed for an upload than the link allows."""
        if self.claims.max_bytes is None:
            return settings
        most = min(self.claims.max_bytes, settings.serve.upload_bytes)
        return settings.model_copy(update={"serve": settings.serve.model_copy(update={"upload_bytes": most})})


def build_url(claims: Claims, token: str) -> str:
    """Write the address of a link; that of a file ends with its name."""
    if claims.kind is Kind.PORT:
        return f"{LINKS}{token}/"
    return f"{LINKS}{token}/{_name(claims)}" if claims.kind is Kind.FILE else f"{LINKS}{token}"


async def enter_link(sharing: SharedLinks, scope: Scope, prefix: str) -> Reply | None:
    """Rewrite the scope to the link's target, below `prefix`; or return a redirect.

    Raises NotFound and Forbidden for an invalid link, or one for another use.
    """
    state = scope["state"]
    state["route"] = ROUTE
    raw: bytes = scope.get("raw_path") or quote(scope["path"]).encode()
    token, slash, rest = raw.removeprefix(LINKS.encode()).partition(b"/")
    client = scope.get("client")
    ask = functools.partial(
        sharing.open, token.decode("latin-1"), address=client[0] if client else "", request_id=state["request_id"]
    )
    _, claims = await ask()
    state["link"] = Entry(claims, LINKS + token.decode(), functools.partial(identify_by, ask))
    if claims.kind is Kind.PORT and not slash:
        # Without the slash a page's relative links would lose the token.
        query = b"?" + scope["query_string"] if scope["query_string"] else b""
        return Reply(b"", 308, ((b"location", b"./" + token + b"/" + query),))
    _check_use(claims, scope, rest)
    path = f"{prefix}/sandboxes/{claims.sandbox_id}/{_below(claims)}".encode()
    scope["raw_path"] = path + b"/" + rest if claims.kind is Kind.PORT else path
    scope["path"] = unquote_to_bytes(scope["raw_path"]).decode("utf-8", "replace")
    if claims.kind is Kind.FILE:
        scope["query_string"] = b""
    return None


def _below(claims: Claims) -> str:
    target = quote(os.fsencode(claims.target))
    return f"{claims.kind}s/{target}"


def _check_use(claims: Claims, scope: Scope, rest: bytes) -> None:
    """Raise when the link does not allow the request."""
    if claims.kind is Kind.PORT:
        return
    if rest not in {b"", _name(claims).encode()} or (scope["type"] == "websocket") is (claims.kind is Kind.FILE):
        raise NotFound("this link is for another target")
    if claims.kind is Kind.FILE and scope["method"] not in _METHODS[claims.method]:
        raise HTTPException(405, headers={"Allow": ", ".join(_METHODS[claims.method])})


def _name(claims: Claims) -> str:
    return quote(os.fsencode(posixpath.basename(claims.target)), safe="") if claims.kind is Kind.FILE else ""


def is_foreign(path: str) -> bool:
    """Whether a server inside a sandbox answers this path; CORS is then its own business."""
    if path.startswith(LINKS):
        return peek_kind(path.removeprefix(LINKS).partition("/")[0]) is Kind.PORT
    return _PORTS.match(path) is not None


async def identify_by(ask: Callable[[], Awaitable[tuple[Principal, Claims]]]) -> Principal:
    """Return the principal of a link's creator."""
    return (await ask())[0]
