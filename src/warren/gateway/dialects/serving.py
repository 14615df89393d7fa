"""The dialects that are served, side by side on one port; what belongs to none of them goes on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from warren.gateway.dispatch import Dispatcher
from warren.gateway.problem_middleware import ProblemMiddleware
from warren.gateway.problems import respond
from warren.records import Principal

if TYPE_CHECKING:
    from collections.abc import Iterable

    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from warren.core.service import Service
    from warren.gateway.auth import Auth
    from warren.gateway.dialects.dialect import Dialect
    from warren.gateway.room import Room
    from warren.settings import Settings


class Dialects:
    """An ASGI application of dialects. Each says in its own words what goes wrong in it."""

    def __init__(
        self,
        dialects: Iterable[Dialect],
        service: Service,
        settings: Settings,
        auth: Auth,
        otherwise: ASGIApp,
        *,
        room: Room,
    ) -> None:
        self._otherwise = otherwise
        self._served: list[tuple[Dispatcher, ASGIApp]] = []
        self._shared: dict[str, ASGIApp] = {}
        for dialect in choose(dialects, settings):
            chosen = getattr(settings.dialects, dialect.name)
            dispatcher = Dispatcher(
                dialect.operations,
                service,
                settings,
                # With a colon, which no subject of a key has: what is a key's is not everybody's.
                auth.opened_to(Principal(subject=f"open:{dialect.name}")) if chosen.open else auth,
                otherwise,
                room=room,
                prefix="",
                parse_body=dialect.parse_body,
                parse_query=dialect.parse_query,
            )
            app: ASGIApp = ProblemMiddleware(dispatcher, dialect.respond)
            for path in dialect.shared_paths:
                # Refusals too: said outside of this, they would lack the headers.
                said = dialect.respond if path in dialect.own_paths else respond
                known = self._shared.get(path) or ProblemMiddleware(otherwise, said)
                self._shared[path] = _with_headers(known, dialect.headers)
            self._served.append((dispatcher, _with_headers(app, dialect.headers) if dialect.headers else app))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let the dialect answer that knows the address."""
        if scope["type"] in {"http", "websocket"}:
            for dispatcher, app in self._served:
                if dispatcher.knows(scope["path"]):
                    await app(scope, receive, send)
                    return
            await self._shared.get(scope["path"], self._otherwise)(scope, receive, send)
            return
        await self._otherwise(scope, receive, send)


def _with_headers(app: ASGIApp, headers: Iterable[tuple[bytes, bytes]]) -> ASGIApp:
    async def serve(scope: Scope, receive: Receive, send: Send) -> None:
        async def add(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), *headers]
            await send(message)

        await app(scope, receive, add)

    return serve


def choose(dialects: Iterable[Dialect], settings: Settings) -> list[Dialect]:
    """Return those that the operator wants served."""
    return [dialect for dialect in dialects if getattr(settings.dialects, dialect.name).enabled]
