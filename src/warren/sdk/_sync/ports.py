# Made from src/warren/sdk/_async/ports.py by `make sdk`: change that instead.
"""Servers inside a sandbox."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from warren.sdk._sync.terminal import connect
from warren.sdk.address import API
from warren.sdk.content import Content
from warren.sdk.request import Request, build_query

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import httpx

    from warren.sdk._sync.connection import Connection
    from warren.sdk.content import Uploadable
    from warren.sdk.io_sync import WebSocket

EVERY = tuple(range(300, 600))
"""No status of a server inside is an error here."""
MOST_BYTES = 4 << 20
"""Of one message of a server's, unless `max_size=` says otherwise; the service passes no larger one on."""


class Ports:
    """Servers on ports inside a sandbox. They never get your key."""

    def __init__(self, connection: Connection, sandbox_id: str) -> None:
        self._connection = connection
        self._path = f"{API}/sandboxes/{sandbox_id}/ports"

    def request(
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
        return self._connection.ask(request)

    @contextlib.contextmanager
    def stream(
        self, port: int, path: str = "/", *, method: str = "GET", headers: Mapping[str, str] | None = None
    ) -> Iterator[httpx.Response]:
        """Send a request to a server, and stream its answer in a `with` block. Raises Error."""
        request = Request(
            method=method,
            path=self._at(port, path),
            headers=dict(headers or {}),
            accepts=EVERY,
            read_timeout_s=None,
        )
        with self._connection.open(request) as answer:
            yield answer

    @contextlib.contextmanager
    def websocket(self, port: int, path: str = "/", **options: Any) -> Iterator[WebSocket]:
        """Open a WebSocket to a server for a `with` block: a connection of the package websockets. Raises Error."""
        options.setdefault("max_size", MOST_BYTES)
        with connect(self._connection, self._at(port, path), **options) as websocket:
            yield websocket

    def _at(self, port: int, path: str) -> str:
        return f"{self._path}/{port}/{path.removeprefix('/')}"
