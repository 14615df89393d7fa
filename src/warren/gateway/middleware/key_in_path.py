"""`/k/<key>/…`: for clients that can be given an address and nothing else. The log never has the key.

Servers inside sandboxes are not reached that way: a page can read its own address.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

    from warren.gateway.ports.hosts import PortHosts

PREFIX = "/k/"
_CREDENTIALS = frozenset({b"authorization", b"x-api-key"})


class KeyInPath:
    """Takes the key out of the path and puts it where keys are looked for; not at hosts of servers inside."""

    def __init__(self, app: ASGIApp, hosts: PortHosts | None = None) -> None:
        self._app = app
        self._hosts = hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, without its prefix."""
        if scope["type"] in {"http", "websocket"} and scope["path"].startswith(PREFIX):
            is_ours = self._hosts is None or not self._hosts.covers(scope["headers"])
            scope = _take_key(scope) if is_ours else scope
        await self._app(scope, receive, send)


def _take_key(scope: Scope) -> Scope:
    scope["state"]["has_key_in_path"] = True
    key, _, rest = scope["path"].removeprefix(PREFIX).partition("/")
    raw = scope.get("raw_path") or b""
    _, _, raw_rest = raw.removeprefix(PREFIX.encode()).partition(b"/")
    # Of two keys the one in the path counts: some clients send a made-up one in a header that must have something.
    headers = [(name, value) for name, value in scope["headers"] if name not in _CREDENTIALS]
    headers.append((b"authorization", b"Bearer " + key.encode("utf-8", "replace")))
    return {**scope, "path": f"/{rest}", "raw_path": b"/" + raw_rest, "headers": headers}
