"""What a client without `await` does that is not HTTP. The words are those of `io_async`."""

from __future__ import annotations

import time
from collections.abc import AsyncIterable, Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import httpx

if TYPE_CHECKING:
    from typing import TypeAlias

    from websockets.sync.client import ClientConnection

    from warren.sdk.content import Content, Progress

    WebSocket: TypeAlias = ClientConnection

T = TypeVar("T")

sleep = time.sleep
HTTPTransport = httpx.HTTPTransport


def in_thread(work: Callable[..., T], *arguments: Any) -> T:
    """Do what may block."""
    return work(*arguments)


@contextmanager
def shielded() -> Iterator[None]:
    """Finish what is inside, whatever happens meanwhile."""
    yield


def send_pieces(content: Content, progress: Progress | None) -> Iterator[bytes]:
    """Yield a body."""
    done = 0
    pieces = content.read()
    if isinstance(pieces, AsyncIterable):
        raise TypeError("only AsyncClient can upload what is read asynchronously")
    for piece in pieces:
        yield piece
        done += len(piece)
        if progress is not None:
            progress(done, content.size)


@contextmanager
def open_websocket(url: str, socket: str | None, **options: Any) -> Iterator[WebSocket]:
    """Open a WebSocket, and close it in the end."""
    from websockets.sync.client import connect, unix_connect

    with connect(url, **options) if socket is None else unix_connect(socket, uri=url, **options) as websocket:
        yield websocket
