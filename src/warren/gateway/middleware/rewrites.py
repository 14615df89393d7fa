"""Where requests come in that name no operation of ours: by a shared link, or at the host of a server inside."""

from __future__ import annotations

from typing import TYPE_CHECKING

from warren.gateway.api.dispatch import PREFIX
from warren.gateway.api.shared_links import LINKS, enter_link

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

    from warren.core.shared_links.shared_links import SharedLinks
    from warren.gateway.api.operations import Reply
    from warren.gateway.ports.hosts import PortHosts


class Rewrites:
    """Makes them requests for what they lead to, and passes all on."""

    def __init__(self, app: ASGIApp, sharing: SharedLinks, hosts: PortHosts | None = None) -> None:
        self._app = app
        self._sharing = sharing
        self._hosts = hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or say where to ask instead."""
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
