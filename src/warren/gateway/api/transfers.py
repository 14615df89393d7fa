"""Streamed bodies: uploads in pieces, and downloads that never look complete when they are cut."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, TypeVar

import anyio

from warren.domain.errors import Error, TooLarge
from warren.gateway.api.bodies import ClientLeft, check_length
from warren.gateway.api.streaming import cancel_when_left, finish_unless_left

if TYPE_CHECKING:
    import contextlib
    from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Sequence

    from starlette.types import Receive, Scope, Send

T = TypeVar("T")

_SMALL = 256 << 10
"""A body of one piece is sent without watching for a client that leaves."""

_log = logging.getLogger(__name__)


class Upload:
    """The body of a request in pieces, once. Raises TooLarge at once where `Content-Length` is over the limit."""

    def __init__(self, scope: Scope, receive: Receive, limit: int) -> None:
        check_length(scope, limit)
        self._receive = receive
        self._limit = limit
        self._is_read = anyio.Event()

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """Yield the pieces. Raises TooLarge, and ClientLeft where the client leaves before the end."""
        size = 0
        while True:
            message = await self._receive()
            if message["type"] != "http.request":
                raise ClientLeft
            piece = message.get("body", b"")
            size += len(piece)
            if size > self._limit:
                raise TooLarge(f"the body of the request is larger than {self._limit} bytes")
            if not message.get("more_body"):
                self._is_read.set()
            if piece:
                yield piece
            if self._is_read.is_set():
                return

    async def finish(self, work: Awaitable[T]) -> T:
        """Return what `work`, which reads this, returns; cancel it, and raise ClientLeft, when the client leaves.

        While there is more to read, the reader notices that the client left; afterwards this does.
        """
        return await finish_unless_left(self._receive, work, once=self._is_read)


class Streamed:
    """A response whose body is produced while it is sent.

    1. `held` is released when the response is over, however it ends.
    2. When the body fails, its last part is never sent: the server then closes the connection, so that no client takes
       half a file for a whole one.
    3. It ends when the client leaves, or has not read everything `within_s` seconds.
    """

    def __init__(
        self,
        pieces: AsyncIterable[bytes],
        held: contextlib.AsyncExitStack,
        *,
        headers: Sequence[tuple[bytes, bytes]],
        status: int = 200,
        length: int | None = None,
        within_s: float | None = None,
    ) -> None:
        self._pieces = pieces
        self._held = held
        self._length = length
        self._within_s = within_s
        sized = [] if length is None else [(b"content-length", b"%d" % length)]
        self._start = {"type": "http.response.start", "status": status, "headers": [*headers, *sized]}

    async def __call__(self, _scope: Scope, receive: Receive, send: Send) -> None:
        """Send it."""
        if self._length is not None and self._length <= _SMALL and self._within_s is None:
            await self._send(send)
            return
        async with anyio.create_task_group() as tasks:
            if self._within_s is not None:
                tasks.cancel_scope.deadline = anyio.current_time() + self._within_s
            tasks.start_soon(cancel_when_left, receive, tasks.cancel_scope)
            await self._send(send)
            tasks.cancel_scope.cancel()

    async def _send(self, send: Send) -> None:
        try:
            async with self._held:
                await send(self._start)
                async for piece in self._pieces:
                    await send({"type": "http.response.body", "body": piece, "more_body": True})
        except Error as error:
            _log.warning("response.cut_off", extra={"code": error.code})
            return
        await send({"type": "http.response.body", "body": b""})
