# Made from src/warren/sdk/_async/terminal.py by `make sdk`: change that instead.
"""Terminals: a connection to a program on a terminal, which outlives it."""

from __future__ import annotations

import contextlib
import json
from typing import TYPE_CHECKING, Any

import httpx

from warren.sdk.failures import NotUnderstood, explain_closed, explain_refused, read_frame
from warren.sdk.io_sync import open_websocket

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Mapping

    from warren.sdk._sync.connection import Connection
    from warren.sdk.io_sync import WebSocket

_OPEN_S = 60.0
_MOST_BYTES = 1 << 16
"""A message of the service's has at most 1 MiB; pasted text goes in parts."""


class Terminal:
    """One connection to a terminal: iterate over what it shows, `send` what is typed.

    Leaving it leaves the program running: open the terminal of the same name again to see it.
    """

    def __init__(self, websocket: WebSocket, ready: Mapping[str, Any]) -> None:
        self._websocket = websocket
        self.name = str(ready.get("name", ""))
        """The name of the terminal."""
        self.is_new = bool(ready.get("created"))
        """Whether this connection started its program."""
        self.scrollback = int(ready.get("scrollback") or 0)
        """How many of the first bytes were shown before, to other connections."""
        self.exit_code: int | None = None
        """Of its program, once that has ended."""

    def __iter__(self) -> Generator[bytes, None, None]:
        while data := self.receive():
            yield data

    def receive(self) -> bytes:
        """Return the next output; empty at the end of the program. Raises Error."""
        while True:
            message = read_message(self._websocket)
            if isinstance(message, bytes):
                return message
            said = read_frame(message)
            if said.get("type") == "exit":
                self.exit_code = said.get("exit_code")
                return b""

    def send(self, data: bytes | str) -> None:
        """Type something. Raises Error."""
        keys = data.encode() if isinstance(data, str) else data
        for start in range(0, len(keys), _MOST_BYTES):
            self._send(keys[start : start + _MOST_BYTES])

    def resize(self, cols: int, rows: int) -> None:
        """Set the size of the window. Raises Error."""
        self._send(json.dumps({"type": "resize", "cols": cols, "rows": rows}))

    def hang_up(self) -> None:
        """End the program, as closing the window would. Raises Error."""
        self._send(json.dumps({"type": "close"}))

    def _send(self, message: bytes | str) -> None:
        from websockets.exceptions import ConnectionClosed

        try:
            self._websocket.send(message)
        except ConnectionClosed as closed:
            raise explain_closed(closed) from closed


@contextlib.contextmanager
def open_terminal(connection: Connection, path: str) -> Iterator[Terminal]:
    """Attach to a terminal for a `with` block. Raises Error."""
    with connect(connection, path) as websocket:
        said = read_frame(read_message(websocket))
        if said.get("type") != "ready":
            raise NotUnderstood("what answers for the terminal is of another version than this client")
        yield Terminal(websocket, said)


@contextlib.contextmanager
def connect(connection: Connection, path: str, **options: Any) -> Iterator[WebSocket]:
    """Open a WebSocket for a `with` block. Raises Error."""
    from websockets.exceptions import WebSocketException

    address = connection.address
    with contextlib.ExitStack() as held:
        try:
            connection.check_socket()
            opened = open_websocket(
                address.websocket_url + path,
                address.socket,
                additional_headers=connection.headers,
                user_agent_header=None,
                open_timeout=_OPEN_S,
                proxy=None,
                compression=None,
                **options,
            )
            websocket = held.enter_context(opened)
        except (OSError, WebSocketException, httpx.ConnectError) as error:
            raise explain_refused(error, address, has_key=connection.api_key is not None) from error
        yield websocket


def read_message(websocket: WebSocket) -> bytes | str:
    """Return the next message. Raises Error once the connection is closed."""
    from websockets.exceptions import ConnectionClosed

    try:
        return websocket.recv()
    except ConnectionClosed as closed:
        raise explain_closed(closed) from closed
