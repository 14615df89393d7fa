"""`/k/<key>/…`: for clients that can be given an address and nothing else. The key is never logged, as no path is."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

PREFIX = "/k/"
_CREDENTIALS = frozenset({b"authorization", b"x-api-key"})


class KeyInPath:
    """Takes the key out of the path and puts it where keys are looked for."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, without its prefix."""
        if scope["type"] in {"http", "websocket"} and scope["path"].startswith(PREFIX):
            scope = _take_key(scope)
        await self._app(scope, receive, send)


def _take_key(scope: Scope) -> Scope:
    key, _, rest = scope["path"].removeprefix(PREFIX).partition("/")
    raw = scope.get("raw_path") or b""
    _, _, raw_rest = raw.removeprefix(PREFIX.encode()).partition(b"/")
    # Of two keys the one in the path counts: some clients send a made-up one in a header that must have something.
    headers = [(name, value) for name, value in scope["headers"] if name not in _CREDENTIALS]
    headers.append((b"authorization", b"Bearer " + key.encode("utf-8", "replace")))
    return {**scope, "path": f"/{rest}", "raw_path": b"/" + raw_rest, "headers": headers}
