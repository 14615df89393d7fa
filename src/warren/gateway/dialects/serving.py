"""The enabled dialects, side by side on one port; other requests go on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from warren.domain.records import Principal
from warren.gateway.api.auth import Door
from warren.gateway.api.dispatch import Dispatcher
from warren.gateway.api.problems import respond
from warren.gateway.middleware.problems import ProblemMiddleware
from warren.gateway.pages.html import prefers_html

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from starlette.responses import Response
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from warren.core.service import Service
    from warren.gateway.api.auth import Auth
    from warren.gateway.api.body_memory import BodyMemory
    from warren.gateway.dialects.dialect import Dialect
    from warren.settings import Settings
    from warren.settings.groups_apis import DialectSettings


class Dialects:
    """An ASGI application of dialects. Each has its own shape of errors."""

    def __init__(
        self,
        dialects: Iterable[Dialect],
        service: Service,
        settings: Settings,
        auth: Auth,
        otherwise: ASGIApp,
        *,
        body_memory: BodyMemory,
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
                auth.opened_to(_build_door(dialect, chosen)) if chosen.open or chosen.networks else auth,
                otherwise,
                body_memory=body_memory,
                prefix="",
                parse_body=dialect.parse_body,
                parse_query=dialect.parse_query,
            )
            app: ASGIApp = ProblemMiddleware(_dress(dispatcher, dialect), _say(dialect))
            for path in dialect.shared_paths:
                # Refusals are answered inside of this too, so that they have the dialect's headers.
                said = dialect.respond if path in dialect.own_paths else respond
                known = self._shared.get(path) or ProblemMiddleware(otherwise, said)
                self._shared[path] = _dress(known, dialect)
            self._served.append((dispatcher, app))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let the dialect answer that knows the address. A browser at `/` gets Warren's page, not a dialect's JSON."""
        is_for_dialects = scope["type"] in {"http", "websocket"}
        if is_for_dialects and not (scope["path"] == "/" and prefers_html(scope["headers"])):
            for dispatcher, app in self._served:
                if dispatcher.knows(scope["path"]):
                    await app(scope, receive, send)
                    return
            await self._shared.get(scope["path"], self._otherwise)(scope, receive, send)
            return
        await self._otherwise(scope, receive, send)


def _build_door(dialect: Dialect, chosen: DialectSettings) -> Door:
    # With a colon, which no key's subject has: unless the operator names one, no key shares what is made without.
    subject = chosen.subject or f"open:{dialect.name}"
    principal = Principal(subject=subject, tenant=chosen.tenant)
    return Door(principal=principal, is_open=chosen.open, networks=chosen.networks)


def _dress(app: ASGIApp, dialect: Dialect) -> ASGIApp:
    """Give requests the dialect's ids, and answers its headers."""
    if not dialect.headers and dialect.new_request_id is None:
        return app

    async def serve(scope: Scope, receive: Receive, send: Send) -> None:
        if dialect.new_request_id is not None and scope["state"].pop("has_own_id", False):
            scope["state"]["request_id"] = dialect.new_request_id()

        async def add(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), *dialect.headers]
            await send(message)

        await app(scope, receive, add)

    return serve


def _say(dialect: Dialect) -> Callable[[BaseException, str], Response]:
    """Build errors in the shape of a dialect, with its headers."""

    def respond(exc: BaseException, request_id: str) -> Response:
        answer = dialect.respond(exc, request_id)
        if not isinstance(exc, dialect.refused_early):
            answer.raw_headers.extend(dialect.headers)
        return answer

    return respond


def choose(dialects: Iterable[Dialect], settings: Settings) -> list[Dialect]:
    """Return the enabled dialects."""
    return [dialect for dialect in dialects if getattr(settings.dialects, dialect.name).enabled]
