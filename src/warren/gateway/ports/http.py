"""HTTP proxy to a server inside a sandbox: one HTTP/1.1 request through the agent's connection, streamed both ways.

Rule 1. What the server says is hostile until h11 has parsed it: bounded, and framed anew for the client.
Rule 2. A connection serves one request. Bytes that a server leaves on it never become part of another answer.
Rule 3. An answer that is not whole never looks whole: the client's connection is closed without its end.
"""

from __future__ import annotations

import contextlib
import logging
import re
from typing import TYPE_CHECKING

import anyio
import h11

from warren.domain.errors import Error, InvalidRequest, StoreError, Unreachable
from warren.gateway.ports.headers import content_length, headers_in, headers_out

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from anyio.abc import TaskGroup
    from starlette.types import ASGIApp, Receive, Scope, Send

    from warren.core.ports.ports import PortConnection
    from warren.gateway.api.operations import Call
    from warren.gateway.ports.headers import Mount

MAX_HEAD = 64 << 10
MAX_HEADERS = 200
QUIET_S = 3600.0
"""The longest silence in the middle of an answer."""
CONTINUE_S = 2.0
"""How long to wait for `100 Continue`; many servers never send it."""
ASK_AGAIN_S = 15.0
_MAX_INTERIM = 16
_VERSIONS = frozenset({b"1.0", b"1.1"})
_LAST_STATUS = 599
_CONTROLS = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")

_log = logging.getLogger(__name__)


def proxy_request(call: Call, sandbox_id: str, mount: Mount, target: bytes) -> ASGIApp:
    """Return the answer of a server inside, as an ASGI application. It raises Unreachable until the answer begins."""

    async def serve(scope: Scope, receive: Receive, send: Send) -> None:
        method = scope["method"]
        async with call.service.ports.connect(call.caller, sandbox_id, mount.port, method) as connection:
            exchange = _Exchange(connection, mount, call.settings.serve.port_answer_s)
            head = headers_in(scope["headers"], mount, scope["scheme"], call.caller.request_id)
            await exchange.begin(method, target, head, scope)
            await exchange.run(scope, receive, send)

    return serve


class _Exchange:
    def __init__(self, connection: PortConnection, mount: Mount, answer_s: float) -> None:
        self._connection = connection
        self._mount = mount
        self._answer_s = answer_s
        self._http = h11.Connection(h11.CLIENT, max_incomplete_event_size=MAX_HEAD)
        self._may_send = anyio.Event()
        self._moved_at = anyio.current_time()
        self._has_begun = False
        self._failure: Error | None = None

    async def begin(self, method: str, target: bytes, headers: list[tuple[bytes, bytes]], scope: Scope) -> None:
        """Send the head of the request. Raises InvalidRequest where HTTP/1.1 cannot express it."""
        given = dict(scope["headers"])
        if b"transfer-encoding" in given:
            headers.append((b"transfer-encoding", b"chunked"))
        elif b"content-length" in given:
            headers.append((b"content-length", given[b"content-length"]))
        if given.get(b"expect", b"").lower() == b"100-continue":
            headers.append((b"expect", b"100-continue"))
        else:
            self._may_send.set()
        headers.append((b"connection", b"close"))
        try:
            data = self._http.send(h11.Request(method=method, target=target, headers=headers))
        except h11.LocalProtocolError as exc:
            raise InvalidRequest(f"the request cannot be forwarded: {exc}") from exc
        await self._connection.send(data or b"")

    async def run(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the body in and the answer out, until that is whole or one side has left."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._upload, receive, tasks)
            tasks.start_soon(self._ask_again, scope["state"]["ask_again"], tasks)
            try:
                await self._answer(scope, send)
            except Error as error:
                self._failure = error
            tasks.cancel_scope.cancel()
        if self._failure is not None:
            self._connection.status = self._failure.code
            if not self._has_begun:
                raise self._failure
            _log.warning("response.cut_off", extra={"code": self._failure.code})

    async def _answer(self, scope: Scope, send: Send) -> None:
        response = await self._read_head()
        status, listed = response.status_code, response.headers
        if len(listed) > MAX_HEADERS:
            raise self._odd(f"more than {MAX_HEADERS} headers")
        # WHY: h11 bounds a head that is not complete, and lets pass one of any size that came at once.
        if sum(len(name) + len(value) for name, value in listed) > MAX_HEAD:
            raise self._odd(f"more than {MAX_HEAD} bytes of headers")
        # WHY: h11 lets both pass, and our own side of HTTP fails on them.
        if status > _LAST_STATUS or any(_CONTROLS.search(value) for _, value in listed):
            raise self._odd("an invalid status or header")
        self._connection.answered(str(status))
        origin = dict(scope["headers"]).get(b"origin")
        headers = [*headers_out(listed, self._mount, origin=origin), *content_length(listed, status)]
        scope["state"]["is_foreign"] = True
        self._has_begun = True
        await send({"type": "http.response.start", "status": status, "headers": headers})
        while isinstance(event := await self._next(QUIET_S), h11.Data):
            await send({"type": "http.response.body", "body": bytes(event.data), "more_body": True})
        if not isinstance(event, h11.EndOfMessage):
            raise self._odd("an answer without an end")
        await send({"type": "http.response.body", "body": b""})

    async def _read_head(self) -> h11.Response:
        for _ in range(_MAX_INTERIM):
            event = await self._next(self._answer_s)
            if isinstance(event, h11.Response):
                if event.http_version not in _VERSIONS:
                    raise self._odd("a version of it that there is not")
                return event
            if not isinstance(event, h11.InformationalResponse) or event.status_code == 101:
                raise self._odd("the end of the connection")
            if event.status_code == 100:
                self._may_send.set()
        raise self._odd("only interim answers")

    async def _next(self, still_s: float) -> h11.Event | type[h11.PAUSED]:
        """Return the server's next event. Raises Unreachable when it is not HTTP, or too late."""
        while True:
            try:
                event = self._http.next_event()
                if event is not h11.NEED_DATA:
                    assert not isinstance(event, type) or event is h11.PAUSED
                    return event
                self._http.receive_data(await self._read(still_s))
            except h11.RemoteProtocolError as exc:
                raise self._odd(str(exc)) from exc

    async def _read(self, still_s: float) -> bytes:
        while True:
            with anyio.move_on_after(still_s):
                return await self._connection.receive()
            # While a body is uploaded, the server may stay silent.
            if anyio.current_time() - self._moved_at >= still_s:
                raise Unreachable(f"the server on port {self._mount.port} did not answer in {still_s:g} s")

    async def _upload(self, receive: Receive, tasks: TaskGroup) -> None:
        """Send the body of the request, then watch for a client that leaves."""
        with anyio.move_on_after(CONTINUE_S):
            await self._may_send.wait()
        is_all_sent = False
        while True:
            message = await receive()
            if message["type"] != "http.request":
                if not self._has_begun:
                    self._connection.status = "client_left"
                tasks.cancel_scope.cancel()
                return
            if is_all_sent:
                continue
            if body := message.get("body", b""):
                await self._send(h11.Data(data=body))
            if not message.get("more_body", False):
                is_all_sent = True
                await self._send(h11.EndOfMessage())

    async def _send(self, event: h11.Event) -> None:
        # The server may have closed the connection meanwhile; its answer counts.
        with contextlib.suppress(h11.LocalProtocolError):
            await self._connection.send(self._http.send(event) or b"")
        self._moved_at = anyio.current_time()

    async def _ask_again(self, ask: Callable[[], Awaitable[object]], tasks: TaskGroup) -> None:
        """End a long answer when the client's credentials are no longer valid."""
        while self._failure is None:
            await anyio.sleep(ASK_AGAIN_S)
            try:
                with contextlib.suppress(StoreError):
                    await ask()
            except Error as error:
                self._failure = error
        tasks.cancel_scope.cancel()

    def _odd(self, what: str) -> Unreachable:
        printable = "".join(each if each.isprintable() else "?" for each in what[:100])
        return Unreachable(f"the server on port {self._mount.port} does not answer as HTTP does: {printable}")
