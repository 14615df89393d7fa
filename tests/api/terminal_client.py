"""A person at a terminal, over a WebSocket: types, looks at what is shown, and waits until something is."""

from __future__ import annotations

import contextlib
import json
import socket
import time
from typing import TYPE_CHECKING, Any

from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from websockets.sync.client import ClientConnection

DEADLINE_S = 60.0


class TerminalClient:
    """One connection to a terminal."""

    def __init__(self, connection: ClientConnection) -> None:
        self.connection = connection
        self.shown = bytearray()
        """Everything that was shown, the scroll-back first."""
        self.said: list[dict[str, Any]] = []
        """What the server said beside it."""
        self.closed: tuple[int, str] | None = None
        """With which code and why the server ended it."""
        self.wait(lambda: self.said, "the server to be ready")
        self.ready = self.said[0]

    def type(self, keys: bytes | str) -> None:
        self.connection.send(keys.encode() if isinstance(keys, str) else keys)

    def say(self, kind: str, **fields: Any) -> None:
        self.connection.send(json.dumps({"type": kind, **fields}))

    def wait_for(self, text: bytes | str, *, times: int = 1) -> bytes:
        """Wait until something has been shown so often."""
        wanted = text.encode() if isinstance(text, str) else text
        self.wait(lambda: self.shown.count(wanted) >= times, f"{wanted!r} to be shown")
        return bytes(self.shown)

    def wait_end(self) -> tuple[int, str]:
        """Wait until the server closes it; return its code and reason."""
        self.wait(lambda: self.closed, "the end", to_its_end=True)
        assert self.closed is not None
        return self.closed

    def wait(self, look: Callable[[], object], what: str, *, to_its_end: bool = False) -> None:
        until = time.monotonic() + DEADLINE_S
        while not look():
            assert time.monotonic() < until, f"waited for {what}, and saw {bytes(self.shown[-2000:])!r}"
            if self.closed is not None:
                assert to_its_end, f"closed with {self.closed}, before {what}: {bytes(self.shown[-2000:])!r}"
                return
            self._receive(until - time.monotonic())

    def cut(self) -> None:
        """Break the connection as a network does that goes away."""
        self.connection.socket.shutdown(socket.SHUT_RDWR)

    def _receive(self, timeout_s: float) -> None:
        try:
            message = self.connection.recv(timeout_s)
        except ConnectionClosed as error:
            end = error.rcvd
            self.closed = (1006, "") if end is None else (end.code, end.reason)
            return
        except TimeoutError:
            return
        if isinstance(message, bytes):
            self.shown += message
        else:
            self.said.append(json.loads(message))


@contextlib.contextmanager
def open_terminal(
    port: int, sandbox_id: str, name: str = "main", *, key: str | None = None, query: str = "", **options: Any
) -> Iterator[TerminalClient]:
    """Attach to a terminal. Raises InvalidStatus when that is refused."""
    headers = {} if key is None else {"Authorization": f"Bearer {key}"}
    with connect(
        f"ws://127.0.0.1:{port}/api/v1/sandboxes/{sandbox_id}/terminals/{name}{query and '?' + query}",
        additional_headers=headers | options.pop("headers", {}),
        open_timeout=DEADLINE_S,
        close_timeout=1,
        compression=None,
        proxy=None,
        **options,
    ) as connection:
        yield TerminalClient(connection)
