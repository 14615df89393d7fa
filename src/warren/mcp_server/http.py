"""MCP transports over HTTP: streamable HTTP, of the current and older revisions, and the older server-sent events.

Opened by the first request, and closed with the service. Callers are authenticated before they come here.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING, Any, Self

import anyio
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser, authorization_context
from mcp.server.auth.provider import AccessToken
from mcp.server.sse import SseServerTransport
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp_types import JSONRPCResponse
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from sse_starlette.sse import AppStatus

from warren.domain.errors import Error, NotFound, Overloaded, QuotaExceeded, StoreError
from warren.mcp_server.answer_memory import PENDING, AnswerMemory, in_pieces
from warren.mcp_server.server import Answers
from warren.mcp_server.use import CALLER, session_key

if TYPE_CHECKING:
    from mcp.shared.message import SessionMessage
    from starlette.types import Message, Receive, Scope, Send

    from warren.core.service import Service
    from warren.domain.records import Caller, Owner
    from warren.settings import Settings

MESSAGES = "/messages/"
_LOOK_S = 0.5
_ASK_AGAIN_S = 15.0
_AGAIN_S = 5.0

_log = logging.getLogger(__name__)


class Transports:
    """The MCP transports of a service."""

    def __init__(self, service: Service, settings: Settings) -> None:
        self._service = service
        self._settings = settings
        self._answers = Answers(service, settings)
        self._server = self._answers.build()
        most = settings.serve.body_bytes
        self._manager = StreamableHTTPSessionManager(
            app=self._server,
            max_request_body_size=most,
            max_sessions=settings.mcp.sessions,
            session_idle_timeout=settings.mcp.session_idle_s,
        )
        self._sse = SseServerTransport(MESSAGES, max_request_body_size=most)
        self._memory = AnswerMemory()
        # WHY: it would cut every stream of events, answers included, as soon as the server begins to stop. `_watch`
        # ends those that do not end by themselves.
        AppStatus.enable_automatic_graceful_drain = False

    async def open(self) -> None:
        """Be ready for requests, until the service ends."""
        ready = anyio.Event()
        # A task of its own: sessions outlive the first request.
        task = asyncio.get_running_loop().create_task(self._run(ready))

        async def end() -> None:
            task.cancel()
            await asyncio.wait((task,))

        self._service.at_end(end)
        await ready.wait()

    async def _run(self, ready: anyio.Event) -> None:
        async with self._manager.run():
            ready.set()
            await anyio.sleep_forever()

    async def serve(self, caller: Caller, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request of streamable HTTP."""
        _introduce(caller, scope)
        if scope["method"] == "DELETE":
            await self._end_session(caller, scope, receive, send)
        elif scope["method"] == "GET":
            await self._while_allowed(self._manager.handle_request, scope, receive, send)
        else:
            self._check_sessions(scope)
            with self._memory.one(caller.principal.owner) as scope["state"][PENDING]:
                await self._manager.handle_request(scope, receive, in_pieces(send))

    def _check_sessions(self, scope: Scope) -> None:
        """Raise QuotaExceeded for a new session over the principal's limit."""
        # The library takes the first of repeated headers.
        said = {name: value.decode("latin-1") for name, value in reversed(scope["headers"])}
        if b"mcp-session-id" in said or said.get(b"mcp-protocol-version") in MODERN_PROTOCOL_VERSIONS:
            return
        mine = authorization_context(scope["user"])
        # The library limits all sessions together: one principal could use up the others'.
        own = sum(each == mine for each in self._manager._session_owners.values())  # noqa: SLF001 - as above
        if own >= self._settings.mcp.own_sessions:
            raise QuotaExceeded(f"you have {own} sessions of MCP open already: end one", retry_after_s=_AGAIN_S)

    async def serve_sse(self, caller: Caller, scope: Scope, receive: Receive, send: Send) -> None:
        """Keep a stream open, which carries the answers to all messages."""
        _introduce(caller, scope)
        await self._while_allowed(self._converse, scope, receive, in_pieces(send))

    async def take_message(self, caller: Caller, scope: Scope, receive: Receive, send: Send) -> None:
        """Take a message of a client that has such a stream."""
        _introduce(caller, scope)
        if self._service.is_draining:
            raise Overloaded("the service is stopping: try again when it is back", retry_after_s=_AGAIN_S)
        # The POST is answered by then; the stream may have ended meanwhile.
        with contextlib.suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
            await self._sse.handle_post_message(scope, receive, send)

    async def _converse(self, scope: Scope, receive: Receive, send: Send) -> None:
        owner = scope["state"][CALLER].principal.owner
        with anyio.CancelScope() as stream:
            async with self._sse.connect_sse(scope, receive, send) as (reader, writer):
                counted = _Counted(writer, self._memory, owner, stream)
                await self._server.run(reader, counted, self._server.create_initialization_options())

    async def _end_session(self, caller: Caller, scope: Scope, receive: Receive, send: Send) -> None:
        """End a session and its sandbox, which has no other name, before the client gets the answer."""
        answer: list[Message] = []

        async def keep(message: Message) -> None:
            answer.append(message)

        await self._manager.handle_request(scope, receive, keep)
        name = next((value.decode("latin-1") for each, value in scope["headers"] if each == b"mcp-session-id"), "")
        if answer[0]["status"] < 300 and name and self._settings.mcp.sandbox_per_session:
            with contextlib.suppress(NotFound):
                sandbox = await self._service.sandboxes.find(caller, session_key(f"session-{name}"))
                await self._service.sandboxes.delete(caller, sandbox.id)
        for message in answer:
            await send(message)

    async def _while_allowed(self, app: Any, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a stream until its client leaves, its credentials become invalid, or the service stops."""
        stream = _Stream(send)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._watch, scope["state"].get("ask_again"), stream, tasks.cancel_scope)
            await app(scope, receive, stream.send)
            tasks.cancel_scope.cancel()

    async def _watch(self, ask_again: Any, stream: _Stream, scope: anyio.CancelScope) -> None:
        ask_at = anyio.current_time() + _ASK_AGAIN_S
        while not self._service.is_draining:
            await anyio.sleep(_LOOK_S)
            if ask_again is not None and anyio.current_time() >= ask_at:
                ask_at = anyio.current_time() + _ASK_AGAIN_S
                try:
                    with contextlib.suppress(StoreError):
                        await ask_again()
                except Error:
                    break
        # The stream would never end by itself; but it still carries the answers to calls that are under way.
        stream.moved_at = anyio.current_time()
        while self._service.is_draining and (self._answers.under_way or not stream.is_quiet):  # noqa: ASYNC110 - as rarely as services end
            await anyio.sleep(_LOOK_S)
        scope.cancel()


class _Stream:
    """The sending side of a stream: whether something is being sent."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._sending = 0
        self.moved_at = anyio.current_time()

    async def send(self, message: Message) -> None:
        """Send, and wait for a slow client."""
        self._sending += 1
        try:
            await self._send(message)
        finally:
            self._sending -= 1
            self.moved_at = anyio.current_time()

    @property
    def is_quiet(self) -> bool:
        """Whether nothing was sent for `_LOOK_S`, in which a finished answer would have begun."""
        return not self._sending and anyio.current_time() - self.moved_at >= _LOOK_S


class _Counted:
    """Counts messages to a stream of events until they are read. A stream over its limit is ended.

    WHY ended: waiting here would hold the whole answer in memory, which is what the limit is for.
    """

    def __init__(self, writer: Any, memory: AnswerMemory, owner: Owner, stream: anyio.CancelScope) -> None:
        self._writer = writer
        self._memory = memory
        self._owner = owner
        self._stream = stream

    async def send(self, item: SessionMessage) -> None:
        """Write a message."""
        with self._memory.one(self._owner) as answer:
            if isinstance(item.message, JSONRPCResponse) and not answer.fits(item.message.result):
                _log.warning("mcp.answers_unread", extra={"tenant": self._owner.tenant, "subject": self._owner.subject})
                self._stream.cancel()
            await self._writer.send(item)

    async def aclose(self) -> None:
        """Close it."""
        await self._writer.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_error: object) -> None:
        await self.aclose()


def _introduce(caller: Caller, scope: Scope) -> None:
    """Set the caller: for the tools, and for the library, which keeps sessions of principals apart."""
    scope["state"][CALLER] = caller
    owner = caller.principal.owner
    token = AccessToken(token="-", client_id=owner.tenant, subject=owner.subject, scopes=[])  # noqa: S106 - no secret
    scope["user"] = AuthenticatedUser(token)
