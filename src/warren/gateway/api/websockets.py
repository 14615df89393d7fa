"""WebSockets: origin, limits, and the end of each when its client's credentials are no longer valid.

The handler of an operation `WEBSOCKET` returns an application that speaks `websocket.*`, best through `WebSocket`. A
failure before it accepts is answered with a problem. A later one closes the connection: the code is 4000 + the
problem's status, the reason is the problem's sentence.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import anyio

from warren.domain.errors import Error, Forbidden, Overloaded, QuotaExceeded, StoreError
from warren.gateway.api.bodies import ClientLeft
from warren.gateway.api.problems import close_websocket

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator

    from starlette.types import ASGIApp, Receive, Scope, Send

    from warren.domain.records import Owner

OWN = 128
"""Open WebSockets of one owner."""
EVERYBODY = 2048
"""Of all owners. Each holds at most a few hundred KiB here."""
ASK_AGAIN_S = 15.0
SUBPROTOCOL = "warren.v1"
KEY_PREFIX = "warren.key."
"""A web page cannot send headers: its key is a subprotocol, which the service never accepts."""
_AGAIN_S = 5.0
_LAST_WORDS_S = 1.0
_PORTS = {"http": 80, "https": 443, "ws": 80, "wss": 443}


class WebSocket:
    """One end of a WebSocket. Everything raises ClientLeft when the client is gone."""

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._scope = scope
        self._receive = receive
        self._send = send
        self.left: tuple[int, str] = (1006, "")
        """Code and reason of the client's close; 1005: no code, 1006: no close frame."""

    async def accept(self, subprotocol: str | None = None) -> None:
        """Accept it; unless one is named, with our own subprotocol where the client offers it."""
        if subprotocol is None and SUBPROTOCOL in self._scope["subprotocols"]:
            subprotocol = SUBPROTOCOL
        while (await self._receive())["type"] != "websocket.connect":
            pass
        await self._pass({"type": "websocket.accept", "subprotocol": subprotocol, "headers": []})

    async def receive(self) -> bytes | str:
        """Return the next message."""
        message = await self._receive()
        if message["type"] != "websocket.receive":
            self.left = (message.get("code") or 1005, message.get("reason") or "")
            raise ClientLeft
        data, text = message.get("bytes"), message.get("text")
        return str(text) if data is None else bytes(data)

    async def send(self, data: bytes | str) -> None:
        """Send a message; wait while the client is slow to read."""
        await self._pass({"type": "websocket.send", "bytes" if isinstance(data, bytes) else "text": data})

    async def close(self, code: int = 1000, reason: str = "") -> None:
        """End it."""
        await self._pass({"type": "websocket.close", "code": code, "reason": reason})

    async def _pass(self, message: dict[str, object]) -> None:
        try:
            await self._send(message)
        except OSError:
            raise ClientLeft from None


class Connections:
    """Counts open WebSockets, or other long connections, for each owner and in all."""

    def __init__(self, own: int = OWN, everybody: int = EVERYBODY, what: str = "WebSockets") -> None:
        self._what = what
        self._most_own = own
        self._most = everybody
        self._own: dict[Owner, int] = {}
        self.open = 0

    @contextlib.contextmanager
    def one(self, owner: Owner) -> Iterator[None]:
        """Count one while it lasts. Raises QuotaExceeded and Overloaded."""
        own = self._own.get(owner, 0)
        if own >= self._most_own:
            raise QuotaExceeded(f"you have {own} {self._what} open already: close one", retry_after_s=_AGAIN_S)
        if self.open >= self._most:
            raise Overloaded(
                f"the service's limit of open {self._what} is reached: try again later", retry_after_s=_AGAIN_S
            )
        self._own[owner] = own + 1
        self.open += 1
        try:
            yield
        finally:
            self.open -= 1
            self._own[owner] -= 1
            if not self._own[owner]:
                del self._own[owner]


def check_origin(headers: Iterable[tuple[bytes, bytes]], origins: Collection[str]) -> None:
    """Raise Forbidden for a WebSocket that a foreign web page makes a browser open.

    WHY: browsers send no preflight for WebSockets, as they do for other requests; they only name the page's origin.
    """
    found = {name: value.decode("latin-1") for name, value in headers if name in {b"origin", b"host"}}
    origin = found.get(b"origin")
    if origin is not None and origin not in origins and not _is_same(origin, found.get(b"host", "")):
        raise Forbidden(f"WebSockets are not opened for web pages of {origin[:100]!r}: see serve.cors_origins")


def take_key(scope: Scope) -> list[tuple[bytes, bytes]]:
    """Return the headers with the client's key; a key among the subprotocols moves there and leaves the scope."""
    offered = scope["subprotocols"]
    key = next((each for each in offered if each.startswith(KEY_PREFIX)), None)
    if key is None:
        return list(scope["headers"])
    left = [each for each in offered if not each.startswith(KEY_PREFIX)]
    others = [(name, value) for name, value in scope["headers"] if name != b"sec-websocket-protocol"]
    scope["subprotocols"] = left
    scope["headers"] = [*others, *([(b"sec-websocket-protocol", ", ".join(left).encode("latin-1"))] if left else ())]
    return [*others, (b"authorization", b"Bearer " + key.removeprefix(KEY_PREFIX).encode("latin-1", "replace"))]


async def serve_while_allowed(
    app: ASGIApp, ask_again: Callable[[], Awaitable[object]], scope: Scope, receive: Receive, send: Send
) -> None:
    """Serve a WebSocket while its client's credentials are valid."""
    refusal: Error | None = None
    with anyio.CancelScope() as serving:

        async def watch() -> None:
            nonlocal refusal
            while refusal is None:
                await anyio.sleep(ASK_AGAIN_S)
                try:
                    await ask_again()
                except StoreError:
                    continue
                except Error as error:
                    refusal = error
            serving.cancel()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(watch)
            with contextlib.suppress(ClientLeft):
                await app(scope, receive, send)
            tasks.cancel_scope.cancel()
    if refusal is not None:
        with anyio.move_on_after(_LAST_WORDS_S), contextlib.suppress(OSError):
            await close_websocket(refusal, send)


def _is_same(origin: str, host: str) -> bool:
    """Whether page and request have the same host and port. The scheme may differ: a proxy may terminate TLS."""
    try:
        page, here = urlsplit(origin), urlsplit(f"//{host}")
        default = _PORTS.get(page.scheme)
        return bool(page.hostname) and (page.hostname, page.port or default) == (here.hostname, here.port or default)
    except ValueError:
        return False
