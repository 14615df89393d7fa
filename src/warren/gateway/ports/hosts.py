"""Hosts for servers inside sandboxes: `5000-0123….apps.example.com`, for pages that need an origin of their own.

Such a host serves one port of one sandbox, and nothing of ours. A link opens it at `/s/<token>/`, which sets the token
as a cookie of that host and redirects to `/`, where the page expects to be. Browsers send the cookie for requests of
every page, so requests of other pages are refused unless they only read.
"""

from __future__ import annotations

import contextlib
import functools
import re
import time
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import quote, unquote_to_bytes, urlsplit

from warren.core.shared_links.signing import Kind
from warren.domain.errors import Forbidden, NotFound
from warren.gateway.api.operations import Reply
from warren.gateway.api.shared_links import LINKS, ROUTE, Entry, identify_by
from warren.gateway.ports.headers import LINK_COOKIE

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from starlette.types import Scope

    from warren.core.shared_links.shared_links import SharedLinks
    from warren.core.shared_links.signing import Claims
    from warren.domain.records import Principal

_SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
_MOST_COOKIES = 200


class PortHost(NamedTuple):
    """A port of a sandbox."""

    sandbox_id: str
    port: int

    def fits(self, claims: Claims) -> bool:
        """Whether a link leads here."""
        return (claims.kind, claims.sandbox_id, claims.target) == (Kind.PORT, self.sandbox_id, str(self.port))


class PortHosts:
    """The hosts below one name, which the operator sets as `https://*.apps.example.com`."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url.replace("*.", "", 1))
        self._scheme, self._netloc = parts.scheme, parts.netloc
        name = re.escape((parts.hostname or "").encode())
        self._own = re.compile(rb"([1-9][0-9]{0,4})-([a-z0-9]{8,40})\." + name + rb"(?::[0-9]{1,5})?", re.IGNORECASE)
        self._any = re.compile(rb"(?:.*\.)?" + name + rb"\.?(?::[0-9]{1,5})?", re.IGNORECASE)

    def find(self, headers: Iterable[tuple[bytes, bytes]]) -> PortHost | None:
        """Return the port of a request's host; None for our own hosts. Raises NotFound for a malformed one."""
        host = next((value for name, value in headers if name == b"host"), b"")
        match = self._own.fullmatch(host)
        if match is not None:
            return PortHost(f"sbx_{match[2].decode().lower()}", int(match[1]))
        if self._any.fullmatch(host):
            raise NotFound("there is no server at this host: its name is a port, a dash and a sandbox")
        return None

    def covers(self, headers: Iterable[tuple[bytes, bytes]]) -> bool:
        """Whether a request's host is below that name."""
        return any(name == b"host" and self._any.fullmatch(value) for name, value in headers)

    def lead(self, scope: Scope) -> Reply | None:
        """Redirect a browser that opens a page by a link to the page's own host."""
        claims = scope["state"]["link"].claims
        mode = next((value for name, value in scope["headers"] if name == b"sec-fetch-mode"), b"")
        if scope["type"] != "http" or claims.kind is not Kind.PORT or mode != b"navigate":
            return None
        host = f"{claims.target}-{claims.sandbox_id.removeprefix('sbx_')}.{self._netloc}"
        rest = scope["raw_path"].partition(b"/ports/")[2].partition(b"/")[2]
        query = b"?" + scope["query_string"] if scope["query_string"] else b""
        where = f"{self._scheme}://{host}{scope['state']['link'].prefix}/".encode() + rest + query
        return Reply(b"", 307, ((b"location", where), (b"cache-control", b"no-store")))

    async def enter(self, sharing: SharedLinks, place: PortHost, scope: Scope, prefix: str) -> Reply | None:
        """Rewrite the scope to the host's port; or set the token's cookie and redirect. Raises Forbidden."""
        state = scope["state"]
        state["route"] = ROUTE
        raw: bytes = scope.get("raw_path") or quote(scope["path"]).encode()
        client = scope.get("client")
        ask = functools.partial(sharing.open, address=client[0] if client else "", request_id=state["request_id"])
        if raw.startswith(LINKS.encode()) and scope["type"] == "http":
            token, _, rest = raw.removeprefix(LINKS.encode()).partition(b"/")
            _, claims = await ask(token.decode("latin-1"))
            if not place.fits(claims):
                raise Forbidden("this link leads to another server")
            return self._leave(scope, token, claims, rest)
        state["link"] = await _find_link(ask, place, scope)
        _check_asker(scope)
        scope["raw_path"] = f"{prefix}/sandboxes/{place.sandbox_id}/ports/{place.port}".encode() + raw
        scope["path"] = unquote_to_bytes(scope["raw_path"]).decode("utf-8", "replace")
        return None

    def _leave(self, scope: Scope, token: bytes, claims: Claims, rest: bytes) -> Reply:
        """Set the token as a cookie, and redirect to the page."""
        # In another site's frame browsers keep only partitioned cookies; elsewhere no other site needs it.
        is_framed = dict(scope["headers"]).get(b"sec-fetch-dest") == b"iframe" and self._scheme == "https"
        reach = b"SameSite=None; Partitioned" if is_framed else b"SameSite=Lax"
        until = b"Max-Age=%d" % max(1, claims.expires_at - int(time.time()))
        parts = [LINK_COOKIE + b"=" + token, b"Path=/", b"HttpOnly", until, reach]
        if self._scheme == "https":
            parts.append(b"Secure")
        query = b"?" + scope["query_string"] if scope["query_string"] else b""
        # WHY: a second slash, or what browsers take for one, would name another host.
        location = b"/" + rest.lstrip(b"/\\") + query
        return Reply(
            b"", 303, ((b"location", location), (b"set-cookie", b"; ".join(parts)), (b"cache-control", b"no-store"))
        )


async def _find_link(ask: Callable[[str], Awaitable[tuple[Principal, Claims]]], place: PortHost, scope: Scope) -> Entry:
    """Return the link of the browser's cookie; another sandbox's page may have set invalid ones beside it."""
    for name, value in scope["headers"]:
        pairs = value.split(b";") if name == b"cookie" else ()
        for pair in pairs[:_MOST_COOKIES]:
            key, _, token = pair.strip().partition(b"=")
            if key != LINK_COOKIE:
                continue
            asked = functools.partial(ask, token.decode("latin-1"))
            with contextlib.suppress(NotFound, Forbidden):
                _, claims = await asked()
                if place.fits(claims):
                    return Entry(claims, "", functools.partial(identify_by, asked), has_host=True)
    raise Forbidden("this page is opened by its link: ask its owner for one")


def _check_asker(scope: Scope) -> None:
    """Raise Forbidden for a request of another origin's page, unless it only reads."""
    headers = dict(scope["headers"])
    origin = headers.get(b"origin")
    is_own = origin is None or origin.partition(b"://")[2].lower() == headers.get(b"host", b"").lower()
    if not is_own and (scope["type"] == "websocket" or scope["method"] not in _SAFE_METHODS):
        raise Forbidden("this request comes from a page of another origin, which may only read here")
