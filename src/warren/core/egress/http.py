"""Egress proxy for plain HTTP: requests in order, each with its own decision, each side with its own framing.

The connection to a server is kept for the next request to the same host. Pipelined requests wait until the response
before them is complete.
"""

from __future__ import annotations

import contextlib
import logging
import time
from typing import TYPE_CHECKING

import anyio
import h11

from warren.core.egress.connection import Asked
from warren.core.egress.dialer import Unreached
from warren.core.egress.exchange import Broken, Exchange
from warren.core.egress.internal_hosts import InnerFailed, InnerRequest
from warren.core.egress.message import MAX_HEAD, BadRequest, read_authority, read_target, reason, wants_upgrade
from warren.core.egress.secret_broker import Broker
from warren.core.egress.session import Limited, Refused
from warren.core.egress.tunnel import run_switched, run_tunnel
from warren.domain.errors import Error

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator

    from warren.core.egress.internal_hosts import InnerAnswer
    from warren.core.egress.message import Target
    from warren.core.egress.session import Opened, Session

HEAD_S = 60.0
"""For the head of a request, and the longest pause between two requests."""
_INNER_BODY = 1 << 20
_KEPT_S = 4.0
"""How long a connection is kept for the next request. Servers close idle connections soon after, often silently."""
_log = logging.getLogger(__name__)
_REPEATED = (b"GET", b"HEAD", b"OPTIONS")
"""Methods that are safe to repeat, and have no body that would be lost."""


class HttpSession:
    """Serves the HTTP requests of one program until it closes, or switches to another protocol."""

    def __init__(self, session: Session, within: tuple[str, int] | None = None) -> None:
        self._session = session
        self._within = within
        """Host and port of the tunnel that carries these requests; None for requests to the proxy itself."""
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=MAX_HEAD)
        self._kept: tuple[tuple[str, int], Opened] | None = None

    async def run(self) -> None:
        """Serve requests until the program closes."""
        try:
            while (request := await self._next_request()) is not None:
                if self._session.inside.is_over:
                    # The program left: requests that it sent ahead have no recipient.
                    return
                if request.method == b"CONNECT" and self._within is None:
                    await self._connect(request)
                    return
                if not await self._serve(request):
                    return
                self._http.start_next_cycle()
        finally:
            with anyio.CancelScope(shield=True):
                await self._let_go()

    async def _next_request(self) -> h11.Request | None:
        try:
            with anyio.fail_after(HEAD_S):
                event = await self._next_event()
        except h11.RemoteProtocolError as error:
            await self._answer(
                error.error_status_hint, f"this is not HTTP that can be passed on: {error}.", "bad request"
            )
            await self._session.inside.finish()
            return None
        except TimeoutError:
            return None
        return event if isinstance(event, h11.Request) else None

    async def _next_event(self) -> h11.Event | type[h11.NEED_DATA | h11.PAUSED]:
        while (event := self._http.next_event()) is h11.NEED_DATA:
            self._http.receive_data(await self._session.inside.receive())
        return event

    async def _serve(self, request: h11.Request) -> bool:
        """Answer one request; False when the connection must close."""
        try:
            target = read_target(request, self._within)
            if target.host in self._session.around.inner:
                return await self._serve_inner(request, target)
            return await self._pass_on(request, target)
        except (BadRequest, h11.RemoteProtocolError, Limited) as error:
            # The connection closes. The bytes after a bad request may be part of it to another parser; a retry above a
            # limit then costs the program a new connection.
            await self._answer(*_explain(error), is_last=True)
        except (Refused, Unreached) as error:
            await self._answer(*_explain(error))
        except Broken as error:
            self._session.around.policies.note_failed(self._session.sandbox_id, str(error))
            await self._let_go()
            await self._answer(error.status, str(error), "unreachable")
        return await self._go_on()

    async def _pass_on(self, request: h11.Request, target: Target) -> bool:
        broker = Broker(self._session.around.policies.secrets_for(self._session.sandbox_id, target.host))
        asked = Asked(target.host, broker.port(target.port), "http", request.method.decode("ascii", "replace"))
        opened, is_new = await self._reach(asked, broker)
        try:
            exchange = await self._exchange(request, target, opened, broker)
        except Broken as error:
            if is_new or not error.is_unanswered or request.method not in _REPEATED:
                raise
            # The server closed the kept connection just as it was used again.
            await self._let_go()
            opened, _ = await self._reach(asked, broker)
            exchange = await self._exchange(request, target, opened, broker)
        if exchange.is_switched:
            await run_switched(self._session.inside, opened)
        if not exchange.is_kept:
            await self._let_go()
        return await self._go_on()

    async def _exchange(self, request: h11.Request, target: Target, opened: Opened, broker: Broker) -> Exchange:
        answer_s = self._session.around.traffic.limits.answer_s
        exchange = Exchange(self._session.inside, self._http, opened, broker, answer_s=answer_s)
        await exchange.run(request, target, upgrade=wants_upgrade(request))
        return exchange

    async def _reach(self, asked: Asked, broker: Broker) -> tuple[Opened, bool]:
        """Return a connection for a request, and whether it is new. The kept one is used where that is allowed."""
        if self._kept is not None:
            (host, port), opened = self._kept
            is_same = (host, port) == (asked.host, asked.port) and opened.connection.secrets == broker.names
            is_fresh = time.monotonic() - opened.connection.moved_at < _KEPT_S
            if (
                is_same
                and is_fresh
                and not opened.outside.has_news
                and self._session.may_still(asked, opened.connection)
            ):
                return opened, False
            await self._let_go()
        context = await broker.trust(self._session.around) if broker else None
        opened = await self._session.open(asked, tls=context)
        opened.connection.secrets = broker.names
        self._kept = ((asked.host, asked.port), opened)
        return opened, True

    async def _let_go(self) -> None:
        if self._kept is not None:
            (_, opened), self._kept = self._kept, None
            await opened.aclose(self._session.around.traffic)

    async def _serve_inner(self, request: h11.Request, target: Target) -> bool:
        """Answer for an internal host."""
        session, method = self._session, request.method.decode("ascii", "replace")
        opened = await self._reach_inner(Asked(target.host, target.port, "http", method))
        opened.connection.requests += 1
        asked = InnerRequest(
            sandbox_id=session.sandbox_id,
            owner=session.owner,
            method=method,
            target=target.path.decode("ascii"),
            headers={name.decode("latin-1"): value.decode("latin-1") for name, value in request.headers},
        )
        await self._skip_body()
        answer = await session.around.inner[target.host](asked)
        try:
            await self._send_inner(answer, opened)
        except InnerFailed as failed:
            # The response ends early, which tells the program that it is incomplete.
            opened.connection.fail(failed.outcome)
            session.around.policies.note_failed(session.sandbox_id, f"{failed}.")
            fields = {"sandbox_id": session.sandbox_id, "host": target.host, "outcome": failed.outcome}
            _log.warning("egress.response_failed", extra={**fields, "reason": str(failed)})
        return await self._go_on()

    async def _reach_inner(self, asked: Asked) -> Opened:
        """Return the connection that counts requests to an internal host: one for all that follow each other."""
        if self._kept is not None and self._kept[0] == (asked.host, asked.port):
            self._session.decide(asked)
            return self._kept[1]
        await self._let_go()
        opened = await self._session.open(asked)
        self._kept = ((asked.host, asked.port), opened)
        return opened

    async def _skip_body(self) -> None:
        size = 0
        while isinstance(event := await self._next_event(), h11.Data):
            size += len(event.data)
            if size > _INNER_BODY:
                raise BadRequest("the body of this request is too large")

    async def _send_inner(self, answer: InnerAnswer, opened: Opened) -> None:
        headers = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in answer.headers.items()]
        if isinstance(answer.body, bytes) and not any(name.lower() == b"content-length" for name, _ in headers):
            headers.append((b"content-length", str(len(answer.body)).encode()))
        phrase = b""
        if answer.status >= 400 and isinstance(answer.body, bytes):
            sentence = answer.body.decode().strip()
            phrase = reason(sentence)
            if answer.status >= 500:
                self._session.around.policies.note_failed(self._session.sandbox_id, sentence)
        try:
            await self._send(h11.Response(status_code=answer.status, headers=headers, reason=phrase))
            async for piece in _pieces(answer.body):
                opened.connection.count(received=len(piece))
                await self._send(h11.Data(data=piece))
            await self._send(h11.EndOfMessage())
        finally:
            # A body holds open files, also when none of it was read.
            close = getattr(answer.body, "aclose", None)
            if close is not None:
                with anyio.CancelScope(shield=True):
                    await close()

    async def _connect(self, request: h11.Request) -> None:
        session = self._session
        try:
            host, port = read_authority(request.target.decode("ascii"), None)
            asked = Asked(host, port, "connect")
            is_within = session.is_plain(asked)
            if not is_within:
                opened = await session.open(asked)
        except (BadRequest, UnicodeDecodeError, Refused, Limited, Unreached) as error:
            await self._answer(*_explain(error))
            await session.inside.finish()
        else:
            session.inside.put_back(bytes(self._http.trailing_data[0]))
            if is_within:
                await self._greet()
                await HttpSession(session, (host, port)).run()
            else:
                await run_tunnel(session, opened, self._greet)

    async def _greet(self) -> None:
        await self._send(h11.Response(status_code=200, headers=[], reason=b"Connection established"))

    async def _answer(self, status: int, sentence: str, word: str, *, is_last: bool = False) -> None:
        """Send a response of the proxy's own, unless a response has begun."""
        if self._http.our_state not in {h11.IDLE, h11.SEND_RESPONSE}:
            return
        self._skip_arrived()
        body = f"{sentence}\n".encode()
        headers = [
            ("Content-Type", "text/plain; charset=utf-8"),
            ("Content-Length", str(len(body))),
            ("X-Warren-Egress", word),
        ]
        if is_last:
            headers.append(("Connection", "close"))
        if word == "limited":
            # Installers retry only after a Retry-After.
            headers.append(("Retry-After", "1"))
        await self._send(h11.Response(status_code=status, headers=headers, reason=reason(sentence)))
        await self._send(h11.Data(data=body))
        await self._send(h11.EndOfMessage())

    def _skip_arrived(self) -> None:
        """Read the rest of a request without a body, so that the next request can follow."""
        with contextlib.suppress(h11.RemoteProtocolError):
            while self._http.their_state is h11.SEND_BODY and self._http.next_event() is not h11.NEED_DATA:
                """Discarded."""

    async def _send(self, event: h11.Event) -> None:
        with contextlib.suppress(h11.LocalProtocolError):
            await self._session.inside.send(self._http.send(event) or b"")

    async def _go_on(self) -> bool:
        """Whether another request can follow; otherwise wait until the program has read the response."""
        if self._http.our_state is h11.DONE and self._http.their_state is h11.DONE:
            return True
        await self._session.inside.finish()
        return False


def _explain(error: Exception) -> tuple[int, str, str]:
    """Return status, sentence and word of the response to a request that is not forwarded."""
    match error:
        case Refused():
            return 403, error.verdict.why, "refused"
        case Limited():
            return 429, str(error), "limited"
        case Unreached():
            return 504 if error.is_late else 502, str(error), "unreachable"
    return 400, f"{error}.", "bad request"


async def _pieces(body: bytes | AsyncIterator[bytes]) -> AsyncGenerator[bytes, None]:
    if isinstance(body, bytes):
        yield body
        return
    try:
        async for piece in body:
            yield piece
    except Error as error:
        raise InnerFailed(str(error)) from error
