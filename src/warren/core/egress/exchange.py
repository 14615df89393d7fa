"""One HTTP exchange of the egress proxy: both bodies are streamed at once, and neither is held in memory."""

from __future__ import annotations

import functools
import time
from typing import TYPE_CHECKING

import anyio
import h11

from warren.core.egress.message import MAX_HEAD, VERSIONS, answer_headers, request_headers
from warren.core.egress.secret_broker import TooMuch

if TYPE_CHECKING:
    from warren.core.egress.message import Target
    from warren.core.egress.secret_broker import Broker
    from warren.core.egress.session import Inside, Opened

_MAX_INTERIM = 16
_MAX_EARLY = 64 << 10
"""Bytes of the next, pipelined request that are kept meanwhile."""


class Broken(Exception):
    """The server did not respond, or not in HTTP; the sentence is for the program."""

    def __init__(self, why: str, status: int = 502, *, is_unanswered: bool = False) -> None:
        super().__init__(why)
        self.status = status
        self.is_unanswered = is_unanswered
        """Whether no byte of a response arrived."""


class Exchange:
    """One request and its response."""

    def __init__(
        self, inside: Inside, http: h11.Connection, opened: Opened, broker: Broker, *, answer_s: float
    ) -> None:
        self._inside = inside
        self._http = http
        self._outside = opened.outside
        self._connection = opened.connection
        self._broker = broker
        self._answer_s = answer_s
        self._server = h11.Connection(h11.CLIENT, max_incomplete_event_size=MAX_HEAD)
        self._has_heard = False
        self._has_left = False
        self.is_switched = False
        """Whether the connection became a WebSocket."""
        self.is_kept = False
        """Whether the server accepts another request on the connection."""

    async def run(self, request: h11.Request, target: Target, *, upgrade: bool) -> None:
        """Forward the request and the response. Raises Broken."""
        self._request, self._target = request, target
        self._connection.requests += 1
        head = self._build_head(upgrade=upgrade)
        failure: Broken | None = None
        async with anyio.create_task_group() as tasks:
            try:
                await self._send_outside(head)
                tasks.start_soon(functools.partial(self._upload, tasks.cancel_scope, upgrade=upgrade))
                await self._download(upgrade=upgrade)
            except Broken as error:
                failure = error
            except OSError:
                failure = self._broken("the connection broke")
            tasks.cancel_scope.cancel()
        if failure is not None:
            raise failure
        if self._has_left:
            raise Broken("the program has left")
        self.is_kept = self._server.our_state is h11.DONE and self._server.their_state is h11.DONE

    def _build_head(self, *, upgrade: bool) -> bytes:
        try:
            headers = self._broker.fill(request_headers(self._request, self._target, upgrade=upgrade))
        except TooMuch as error:
            raise Broken(f"the request cannot be passed on: {error}.", 431) from None
        try:
            request = h11.Request(method=self._request.method, target=self._target.path, headers=headers)
            return self._server.send(request) or b""
        except h11.LocalProtocolError as error:
            said = self._broker.clean(str(error).encode()).decode(errors="replace")
            raise Broken(f"the request cannot be passed on: {said}.", 400) from None

    async def _upload(self, scope: anyio.CancelScope, *, upgrade: bool) -> None:
        """Send the body of the request; afterwards notice when the program disconnects."""
        try:
            while self._http.their_state is h11.SEND_BODY:
                event = self._http.next_event()
                if event is h11.NEED_DATA:
                    self._http.receive_data(await self._inside.receive())
                elif isinstance(event, h11.Data):
                    await self._send_outside(self._server.send(h11.Data(data=event.data)) or b"")
            await self._send_outside(self._server.send(h11.EndOfMessage()) or b"")
        except h11.RemoteProtocolError:
            self._leave(scope)
            return
        except (OSError, h11.LocalProtocolError):
            # The server takes no more; what it sent before that is still read.
            return
        if not upgrade:
            await self._watch(scope)

    async def _watch(self, scope: anyio.CancelScope) -> None:
        early = 0
        while early < _MAX_EARLY:
            data = await self._inside.receive()
            if not data:
                self._leave(scope)
                return
            early += len(data)
            self._http.receive_data(data)

    def _leave(self, scope: anyio.CancelScope) -> None:
        self._has_left = True
        self._connection.fail("abandoned")
        scope.cancel()

    async def _download(self, *, upgrade: bool) -> None:
        answer = await self._read_head(upgrade=upgrade)
        if answer is None:
            return
        if answer.http_version not in VERSIONS:
            raise self._broken("it answers in a version of HTTP that there is not")
        clean = self._broker.cleaner()
        await self._send_inside(
            h11.Response(
                status_code=answer.status_code,
                headers=self._broker.clean_headers(answer_headers(answer), self._target),
                reason=self._broker.clean(answer.reason),
            )
        )
        while isinstance(event := await self._next(), h11.Data):
            await self._send_inside(h11.Data(data=clean.feed(bytes(event.data)) if clean else event.data))
        if not isinstance(event, h11.EndOfMessage):
            raise self._broken("its answer has no end")
        if clean and (rest := clean.end()):
            await self._send_inside(h11.Data(data=rest))
        await self._send_inside(h11.EndOfMessage())

    async def _read_head(self, *, upgrade: bool) -> h11.Response | None:
        """Return the head of the response; None after a switch to WebSocket."""
        for _ in range(_MAX_INTERIM):
            event = await self._next_head()
            if isinstance(event, h11.Response):
                return event
            if not isinstance(event, h11.InformationalResponse):
                raise self._broken("it closed the connection without an answer")
            if event.status_code == 101:
                if not upgrade:
                    raise self._broken("it changes the protocol and was not asked to")
                await self._switch(event)
                return None
            if self._request.http_version == b"1.1":
                headers = self._broker.clean_headers(answer_headers(event), self._target)
                await self._send_inside(h11.InformationalResponse(status_code=event.status_code, headers=headers))
        raise self._broken("it answers with promises only")

    async def _next_head(self) -> h11.Event:
        """Wait for a response; the timeout restarts while the body of the request moves."""
        while True:
            still_s = time.monotonic() - self._connection.moved_at
            if still_s >= self._answer_s:
                raise Broken(f"{self._target.host} did not answer in {self._answer_s:g} s.", 504)
            with anyio.move_on_after(self._answer_s - still_s):
                return await self._next()

    async def _switch(self, event: h11.InformationalResponse) -> None:
        """Forward the switch of protocols, and the bytes that came with it."""
        self.is_switched = True
        headers = self._broker.clean_headers(answer_headers(event, upgrade=True), self._target)
        reason = self._broker.clean(event.reason)
        await self._send_inside(h11.InformationalResponse(status_code=101, headers=headers, reason=reason))
        self._inside.put_back(bytes(self._http.trailing_data[0]))
        await self._inside.send(bytes(self._server.trailing_data[0]))

    async def _next(self) -> h11.Event:
        while True:
            try:
                event = self._server.next_event()
                if event is h11.NEED_DATA:
                    data = await self._outside.receive()
                    self._has_heard = self._has_heard or bool(data)
                    self._connection.count(received=len(data))
                    self._server.receive_data(data)
                    continue
            except h11.RemoteProtocolError as error:
                raise self._broken(f"it does not answer as HTTP does: {error}") from None
            except OSError:
                raise self._broken("the connection broke") from None
            assert not isinstance(event, type)
            return event

    async def _send_outside(self, data: bytes) -> None:
        if data:
            self._connection.count(sent=len(data))
            await self._outside.send(data)

    async def _send_inside(self, event: h11.Event) -> None:
        try:
            data = self._http.send(event) or b""
        except h11.LocalProtocolError as error:
            raise self._broken(f"what it answers cannot be passed on: {error}") from None
        await self._inside.send(data)

    def _broken(self, what: str) -> Broken:
        printable = "".join(each if each.isprintable() else "?" for each in what[:200])
        where = f"{self._target.host}:{self._connection.asked.port}"
        return Broken(f"{where} cannot be reached: {printable}.", is_unanswered=not self._has_heard)
