"""Server-sent events, and detection of clients that leave."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any, TypeVar

import anyio

from warren.domain.errors import StoreError, Unauthenticated
from warren.gateway.api.bodies import ClientLeft
from warren.gateway.api.large_responses import send_in_pieces
from warren.gateway.api.operations import dump
from warren.gateway.api.problems import STOPPED, build_problem, log_failure

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping

    from starlette.types import Receive, Scope, Send

    from warren.gateway.api.problems import Problem

T = TypeVar("T")

HEARTBEAT_S = 15.0
PATIENCE_S = 0.02
"""The watch for a client that leaves begins this late: a warm call ends before."""
_LAST_WORDS_S = 1.0
_HEARTBEAT = b": still here\n\n"
_LINE_ENDS = tuple((chr(code).encode(), b"\\u%04x" % code) for code in (0x85, 0x2028, 0x2029))
_HEADERS = (
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
)


def encode_event(kind: str, data: object, seq: int | None = None) -> bytes:
    """Write one event. Its data is JSON on one line, which no content can break out of."""
    number = b"" if seq is None else b"id: %d\n" % seq
    text = dump(data)
    # WHY: many Python clients end a line at these too, against the standard.
    for character, escaped in _LINE_ENDS:
        if character in text:
            text = text.replace(character, escaped)
    return b"%sevent: %s\ndata: %s\n\n" % (number, kind.encode(), text)


async def finish_unless_left(receive: Receive, work: Awaitable[T], *, once: anyio.Event | None = None) -> T:
    """Return what `work` returns; cancel it, and raise ClientLeft, soon after the client closes the connection.

    Where `work` itself receives, `once` is set when it has everything: only then can this receive.
    """
    with anyio.CancelScope() as scope:
        lookout = _Lookout(receive, scope, once)
        try:
            return await work
        finally:
            lookout.end()
    raise ClientLeft


class _Lookout:
    """Watches for a client that leaves, once the work takes longer than a warm call.

    WHY not a task group from the start: it costs as much as the rest of the gateway for a warm call.
    SAFE BECAUSE: its only task ends with `end`, which the owner calls however the work ends.
    """

    def __init__(self, receive: Receive, scope: anyio.CancelScope, once: anyio.Event | None) -> None:
        self._receive = receive
        self._scope = scope
        self._once = once
        self._task: asyncio.Task[None] | None = None
        self._timer = asyncio.get_running_loop().call_later(PATIENCE_S, self._begin)

    def end(self) -> None:
        self._timer.cancel()
        if self._task is not None:
            self._task.cancel()

    def _begin(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._watch())

    async def _watch(self) -> None:
        if self._once is not None:
            await self._once.wait()
        await cancel_when_left(self._receive, self._scope)


def _say(problem: Problem, request_id: str) -> bytes:
    return encode_event("error", problem.render(request_id))


class EventStream:
    """An answer of server-sent events: what a generator yields, and a heartbeat after `heartbeat_s` of silence.

    A failure half-way is the event `error`, with the problem, which `say` writes as the dialect does. The stream ends
    when the client leaves. `held` is released however it ends, also when the generator never ran.
    """

    def __init__(
        self,
        events: AsyncGenerator[bytes, None],
        held: contextlib.AsyncExitStack,
        *,
        heartbeat_s: float = HEARTBEAT_S,
        headers: tuple[tuple[bytes, bytes], ...] = _HEADERS,
        say: Callable[[Problem, str], bytes] = _say,
    ) -> None:
        self._events = events
        self._held = held
        self._heartbeat_s = heartbeat_s
        self._headers = headers
        self._say = say
        self._quiet_since = 0.0
        self._is_sending = False
        """True while an event may be half sent: nothing may come between its pieces."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it, to its end or the client's."""
        async with self._held, contextlib.aclosing(self._events):
            await send({"type": "http.response.start", "status": 200, "headers": [*self._headers]})
            try:
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(cancel_when_left, receive, tasks.cancel_scope)
                    tasks.start_soon(self._beat, scope["state"], send, tasks.cancel_scope)
                    await self._send_all(str(scope["state"]["request_id"]), send)
                    tasks.cancel_scope.cancel()
            except asyncio.CancelledError:
                # Only the server cancels a request: at its end, after its grace period.
                event = self._say(STOPPED, str(scope["state"]["request_id"]))
                with anyio.move_on_after(_LAST_WORDS_S, shield=True):
                    await send({"type": "http.response.body", "body": event, "more_body": True})
        await send({"type": "http.response.body", "body": b""})

    async def _send_all(self, request_id: str, send: Send) -> None:
        try:
            async for event in self._events:
                self._is_sending = True
                await send_in_pieces(send, event)
                self._quiet_since = anyio.current_time()
                self._is_sending = False
        except Exception as exc:  # noqa: BLE001 - the answer has begun: this is the one way left to say what went wrong
            problem = build_problem(exc)
            if problem.status == 500:
                log_failure(exc, request_id)
            event = self._say(problem, request_id)
            await send({"type": "http.response.body", "body": event, "more_body": True})

    async def _beat(self, state: Mapping[str, Any], send: Send, scope: anyio.CancelScope) -> None:
        """Send heartbeats, and end the stream when the client's credentials are no longer valid."""
        ask_again = state.get("ask_again")
        self._quiet_since = anyio.current_time()
        while True:
            await anyio.sleep_until(self._quiet_since + self._heartbeat_s)
            try:
                with contextlib.suppress(StoreError):
                    if ask_again is not None:
                        await ask_again()
            except Unauthenticated as error:
                if not self._is_sending:
                    event = self._say(build_problem(error), str(state["request_id"]))
                    await send({"type": "http.response.body", "body": event, "more_body": True})
                scope.cancel()
                return
            if self._is_sending:
                self._quiet_since = anyio.current_time()
            elif anyio.current_time() >= self._quiet_since + self._heartbeat_s:
                self._quiet_since = anyio.current_time()
                await send({"type": "http.response.body", "body": _HEARTBEAT, "more_body": True})


async def cancel_when_left(receive: Receive, scope: anyio.CancelScope) -> None:
    """Cancel the work for a client once it closes the connection; what it still sends is discarded."""
    while (await receive())["type"] != "http.disconnect":
        pass
    scope.cancel()
