"""From exceptions to problem details, for HTTP and WebSockets."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

from warren.core.concurrency.admission import RateExceeded
from warren.gateway.api.problems import STOPPED, build_problem, close_websocket, log_failure, rate_headers, respond

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.responses import Response
    from starlette.types import ASGIApp, Message, Receive, Scope, Send


class ProblemMiddleware:
    """Answers exceptions of the application inside with problems. Every layer that can fail is inside of it.

    From the scope's state it takes `request_id`, and `rate` where a rate is set.
    """

    def __init__(self, app: ASGIApp, respond: Callable[[BaseException, str], Response] = respond) -> None:
        self._app = app
        self._respond = respond

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on."""
        if scope["type"] == "websocket":
            await self._pass_websocket(scope, receive, send)
            return
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        has_begun = False

        async def note(message: Message) -> None:
            nonlocal has_begun
            has_begun = True
            await send(message)

        try:
            await self._app(scope, receive, note)
        except asyncio.CancelledError:
            # Only the server cancels a request: at its end, after its grace period.
            if has_begun:
                raise
            await STOPPED.respond(str(scope.get("state", {}).get("request_id", "")))(scope, receive, send)
        except Exception as exc:
            state = scope.get("state", {})
            request_id = str(state.get("request_id", ""))
            if has_begun:
                # The server cuts the connection, so that the client sees an incomplete answer.
                log_failure(exc, request_id)
                raise
            answer = self._respond(exc, request_id)
            if (rate := state.get("rate")) is not None and not isinstance(exc, RateExceeded):
                answer.headers.update(rate_headers(rate))
            await answer(scope, receive, send)

    async def _pass_websocket(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse a WebSocket with a problem, or close one that is open."""
        has_begun = False

        async def note(message: Message) -> None:
            nonlocal has_begun
            has_begun = has_begun or message["type"] == "websocket.accept"
            await send(message)

        try:
            await self._app(scope, receive, note)
        except Exception as exc:  # noqa: BLE001 - the client gets the problem, and unexpected ones are logged
            request_id = str(scope.get("state", {}).get("request_id", ""))
            if not has_begun:
                await respond(exc, request_id)(scope, receive, send)
                return
            if build_problem(exc).status == 500:
                log_failure(exc, request_id)
            with contextlib.suppress(OSError):
                await close_websocket(exc, send)
