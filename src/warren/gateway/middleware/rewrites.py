"""Requests under other addresses, rewritten to requests for an operation.

1. `/k/<key>/…` is for clients that can be given an address and nothing else: the key moves into a header. The log never
   has it. Servers inside sandboxes are not reached that way: a page can read its own address.
2. `/s/<token>/…` is a shared link: it becomes a request for the file or port that the link leads to.
3. A host below `serve.ports_url` is a port of a sandbox: the request becomes one for that port.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from warren.gateway.api.dispatch import PREFIX
from warren.gateway.api.shared_links import LINKS, enter_link

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

    from warren.core.shared_links.shared_links import SharedLinks
    from warren.gateway.api.operations import Reply
    from warren.gateway.ports.hosts import PortHosts

KEYS = "/k/"
_CREDENTIALS = frozenset({b"authorization", b"x-api-key"})


class KeyInPath:
    """Moves the key from the path into a header; not at the hosts of sandboxes' ports."""

    def __init__(self, app: ASGIApp, hosts: PortHosts | None = None) -> None:
        self._app = app
        self._hosts = hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, without its prefix."""
        if scope["type"] in {"http", "websocket"} and scope["path"].startswith(KEYS):
            is_ours = self._hosts is None or not self._hosts.covers(scope["headers"])
            scope = _take_key(scope) if is_ours else scope
        await self._app(scope, receive, send)


class Rewrites:
    """Rewrites requests by links and port hosts, and passes all on."""

    def __init__(self, app: ASGIApp, sharing: SharedLinks, hosts: PortHosts | None = None) -> None:
        self._app = app
        self._sharing = sharing
        self._hosts = hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or redirect."""
        redirect = await self._enter(scope) if scope["type"] in {"http", "websocket"} else None
        await (redirect or self._app)(scope, receive, send)

    async def _enter(self, scope: Scope) -> Reply | None:
        place = None if self._hosts is None else self._hosts.find(scope["headers"])
        if self._hosts is not None and place is not None:
            return await self._hosts.enter(self._sharing, place, scope, PREFIX)
        if not scope["path"].startswith(LINKS):
            return None
        redirect = await enter_link(self._sharing, scope, PREFIX)
        return self._hosts.lead(scope) if redirect is None and self._hosts is not None else redirect


def _take_key(scope: Scope) -> Scope:
    scope["state"]["has_key_in_path"] = True
    key, _, rest = scope["path"].removeprefix(KEYS).partition("/")
    raw = scope.get("raw_path") or b""
    _, _, raw_rest = raw.removeprefix(KEYS.encode()).partition(b"/")
    # The key in the path wins: some clients send a made-up one in a header that they cannot leave empty.
    headers = [(name, value) for name, value in scope["headers"] if name not in _CREDENTIALS]
    headers.append((b"authorization", b"Bearer " + key.encode("utf-8", "replace")))
    return {**scope, "path": f"/{rest}", "raw_path": b"/" + raw_rest, "headers": headers}
