"""Large answers: a few at a time for each owner, from before they are written until they have been read.

A client that asks for many and reads none would otherwise have all of them held here, whole, until it is given up.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from starlette.types import ASGIApp, Receive, Scope, Send

    from warren.core.concurrency.fair_queue import OwnerLimiter
    from warren.domain.records import Owner
    from warren.domain.values import Display, ExecResult
    from warren.gateway.api.operations import Call, Reply

LARGE = 64 << 10
"""Bytes of content; JSON may be six times as long."""
PIECE = 64 << 10


def measure_displays(displays: Iterable[Display]) -> int:
    """Estimate the size of displays in an answer."""
    return sum(len(value) for display in displays for value in display.data.values())


def measure_result(result: ExecResult | None) -> int:
    """Estimate the size of a result in an answer."""
    if result is None:
        return 0
    return len(result.stdout) + len(result.stderr) + measure_displays(result.displays)


def answer_with(call: Call, size: int, render: Callable[[], Reply]) -> ASGIApp:
    """Answer with what `render` writes, about `size` bytes: small ones at once, large ones in their owner's turn."""
    return (
        render() if size <= LARGE else _LargeReply(call.service.executions.results, call.caller.principal.owner, render)
    )


async def send_in_pieces(send: Send, body: bytes) -> None:
    """Send a part of a body; return when the client has read most of it."""
    view = memoryview(body)
    # WHY: the server buffers each piece whole, however slow the client is, but waits before the next.
    for at in range(0, len(view), PIECE):
        await send({"type": "http.response.body", "body": bytes(view[at : at + PIECE]), "more_body": True})


class _LargeReply:
    """A reply that is written in its owner's turn. Raises QuotaExceeded and Overloaded, before anything is sent."""

    def __init__(self, places: OwnerLimiter, owner: Owner, render: Callable[[], Reply]) -> None:
        self._places = places
        self._owner = owner
        self._render = render

    async def __call__(self, _scope: Scope, _receive: Receive, send: Send) -> None:
        """Send it."""
        async with self._places.one(self._owner):
            reply = self._render()
            headers = [*reply.headers, (b"content-length", b"%d" % len(reply.body))]
            await send({"type": "http.response.start", "status": reply.status, "headers": headers})
            await send_in_pieces(send, reply.body)
            await send({"type": "http.response.body", "body": b""})
