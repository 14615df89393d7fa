"""What a client with `await` does that is not HTTP. The words are those of `io_sync`."""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import httpx

if TYPE_CHECKING:
    from typing import TypeAlias

    from websockets.asyncio.client import ClientConnection

    from warren.sdk.content import Content, Progress

    WebSocket: TypeAlias = ClientConnection

T = TypeVar("T")

HTTPTransport = httpx.AsyncHTTPTransport


async def sleep(seconds: float) -> None:
    """Wait, and let others go on."""
    import anyio

    await anyio.sleep(seconds)


async def in_thread(work: Callable[..., T], *arguments: Any) -> T:
    """Do what may block."""
    from anyio import to_thread

    return await to_thread.run_sync(work, *arguments)


@asynccontextmanager
async def shielded() -> AsyncIterator[None]:
    """Finish what is inside, whatever is cancelled meanwhile."""
    import anyio

    with anyio.CancelScope(shield=True):
        yield


async def send_pieces(content: Content, progress: Progress | None) -> AsyncIterator[bytes]:
    """Yield a body; what reads from a disk does so in a thread."""
    done = 0
    pieces = content.read()
    if isinstance(pieces, AsyncIterable):
        async for piece in pieces:
            yield piece
            done += len(piece)
            if progress is not None:
                progress(done, content.size)
        return
    while (next_piece := await in_thread(next, pieces, None)) is not None:
        yield next_piece
        done += len(next_piece)
        if progress is not None:
            progress(done, content.size)


@asynccontextmanager
async def open_websocket(url: str, socket: str | None, **options: Any) -> AsyncIterator[WebSocket]:
    """Open a WebSocket, and close it in the end."""
    from websockets.asyncio.client import connect, unix_connect

    async with connect(url, **options) if socket is None else unix_connect(socket, uri=url, **options) as websocket:
        yield websocket
