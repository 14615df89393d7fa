"""Servers inside a sandbox."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from warren.sdk._async.terminal import connect
from warren.sdk.address import API
from warren.sdk.content import Content
from warren.sdk.request import Request, build_query

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    import httpx

    from warren.sdk._async.connection import AsyncConnection
    from warren.sdk.content import Uploadable
    from warren.sdk.io_async import WebSocket

EVERY = tuple(range(300, 600))
"""No status of a server inside is an error here."""
MOST_BYTES = 4 << 20
"""Of one message of a server's, unless `max_size=` says otherwise; the service passes no larger one on."""


class AsyncPorts:
    """Servers on ports inside a sandbox. They never get your key."""

    def __init__(self, connection: AsyncConnection, sandbox_id: str) -> None:
        self._connection = connection
        self._path = f"{API}/sandboxes/{sandbox_id}/ports"

    async def request(
        self,
        port: int,
        path: str = "/",
        *,
        method: str = "GET",
        params: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        content: Uploadable | None = None,
    ) -> httpx.Response:
        """Ask a server, and return what it answers whatever its status; `path` stands there as in an address.

        Raises Error where the service cannot be reached. That nothing listens on the port is an answer, of status 502.
        """
        request = Request(
            method=method,
            path=self._at(port, path),
            params=build_query(params or {}),
            headers=dict(headers or {}),
            content=None if content is None else Content.of(content),
            accepts=EVERY,
        )
        return await self._connection.ask(request)

    @contextlib.asynccontextmanager
    async def stream(
        self, port: int, path: str = "/", *, method: str = "GET", headers: Mapping[str, str] | None = None
    ) -> AsyncIterator[httpx.Response]:
        """Send a request to a server, and stream its answer in a `with` block. Raises Error."""
        request = Request(
            method=method,
            path=self._at(port, path),
            headers=dict(headers or {}),
            accepts=EVERY,
            read_timeout_s=None,
        )
        async with self._connection.open(request) as answer:
            yield answer

    @contextlib.asynccontextmanager
    async def websocket(self, port: int, path: str = "/", **options: Any) -> AsyncIterator[WebSocket]:
        """Open a WebSocket to a server for a `with` block: a connection of the package websockets. Raises Error."""
        options.setdefault("max_size", MOST_BYTES)
        async with connect(self._connection, self._at(port, path), **options) as websocket:
            yield websocket

    def _at(self, port: int, path: str) -> str:
        return f"{self._path}/{port}/{path.removeprefix('/')}"
