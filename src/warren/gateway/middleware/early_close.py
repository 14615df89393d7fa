"""Early answers: a request that is refused while its body arrives is answered at once, then the connection is closed.

A client that gets "too large" or "no such sandbox" while it uploads a gigabyte must not have to send the rest. But a
connection that is closed on data in flight is reset, and the answer is lost with it; and clients such as httpx send the
whole body before they read. So the answer is sent at once, the rest is read and discarded, up to 256 MiB and for up to
30 seconds, and only then is the connection closed. A client that sends nothing for 2 seconds has read the answer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

_SMALL = 64 << 10
"""The server itself reads a rest of at most this, and keeps the connection."""
LINGER_BYTES = 160 << 20
LINGER_S = 30.0
_QUIET_S = 2.0


class EarlyCloseMiddleware:
    """Closes the connection when an answer is complete and a large body is not."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on."""
        if scope["type"] != "http" or not _may_be_large(scope):
            await self._app(scope, receive, send)
            return
        is_read = False

        async def note() -> Message:
            nonlocal is_read
            message = await receive()
            is_read = is_read or not message.get("more_body", False)
            return message

        async def finish(message: Message) -> None:
            if is_read:
                await send(message)
            elif message["type"] == "http.response.start":
                await send({**message, "headers": [*message["headers"], (b"connection", b"close")]})
            elif message.get("more_body", False):
                await send(message)
            else:
                await send({**message, "more_body": True})
                await _linger(note)
                await send({"type": "http.response.body", "body": b""})

        await self._app(scope, note, finish)


async def _linger(receive: Receive) -> None:
    left = LINGER_BYTES
    until = anyio.current_time() + LINGER_S
    with anyio.CancelScope() as scope:
        while left > 0:
            scope.deadline = min(until, anyio.current_time() + _QUIET_S)
            message = await receive()
            if message["type"] != "http.request" or not message.get("more_body", False):
                return
            left -= len(message.get("body", b""))


def _may_be_large(scope: Scope) -> bool:
    for name, value in scope["headers"]:
        if name == b"content-length":
            return len(value) > 5 or int(value) > _SMALL
        if name == b"transfer-encoding":
            return True
    return False
