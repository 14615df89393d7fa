"""A small client of the Chrome DevTools Protocol over the browser's own pipe: no port that others could open.

A hostile page can influence what the browser sends, so messages are bounded and every call has a deadline.
"""

from __future__ import annotations

import asyncio
import json
import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

MAX_MESSAGE = 160 << 20
"""A picture of 4096 x 4096 pixels of noise, in base64, and some more."""
CALL_TIMEOUT_S = 30.0
WORLD = "warren"
"""Name of the isolated world: the page's scripts share its document with us, but no object and no prototype."""


class BrowserGone(Exception):
    """The browser, or the page in it, has ended."""


class CallRefused(Exception):
    """The browser answered a call with an error."""


class ScriptFailed(Exception):
    """One of our own scripts raised an exception in the page."""


class Connection(asyncio.Protocol):
    """One browser at the other end of two pipes. Messages are JSON, each ended by a zero byte."""

    _reading: asyncio.ReadTransport
    _writing: asyncio.WriteTransport

    def __init__(self) -> None:
        self._received = bytearray()
        self._searched = 0
        self._last_id = 0
        self._waiting: dict[int, tuple[str | None, asyncio.Future[Any]]] = {}
        self._handlers: dict[tuple[str | None, str], list[Callable[[dict[str, Any]], None]]] = {}
        self._gone: str | None = None
        self._gone_sessions: dict[str, str] = {}

    @classmethod
    async def open(cls, read_fd: int, write_fd: int) -> Connection:
        """Connect over two descriptors and take ownership of them."""
        loop = asyncio.get_running_loop()
        self = cls()
        self._reading, _ = await loop.connect_read_pipe(lambda: self, os.fdopen(read_fd, "rb", 0))
        self._writing, _ = await loop.connect_write_pipe(asyncio.BaseProtocol, os.fdopen(write_fd, "wb", 0))
        return self

    def close(self) -> None:
        """Close the pipes; the browser exits when it reads the end."""
        self._reading.close()
        self._writing.close()
        self._end("the connection to the browser was closed")

    def on(self, method: str, handler: Callable[[dict[str, Any]], None], session_id: str | None = None) -> None:
        """Register a handler for an event. It must not block or raise."""
        self._handlers.setdefault((session_id, method), []).append(handler)

    def post(self, method: str, params: dict[str, Any], session_id: str | None = None) -> int:
        """Send a command without waiting for its answer."""
        if self._gone is not None:
            raise BrowserGone(self._gone)
        self._last_id += 1
        message: dict[str, Any] = {"id": self._last_id, "method": method, "params": params}
        if session_id is not None:
            message["sessionId"] = session_id
        self._writing.write(json.dumps(message).encode() + b"\0")
        return self._last_id

    async def call(
        self,
        method: str,
        params: dict[str, Any] | None = None,
        *,
        session_id: str | None = None,
        timeout_s: float = CALL_TIMEOUT_S,
    ) -> Any:
        """Send a command and return its result. Raises CallRefused, BrowserGone, TimeoutError."""
        if session_id in self._gone_sessions:
            raise BrowserGone(self._gone_sessions[session_id])
        number = self.post(method, params or {}, session_id)
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting[number] = (session_id, future)
        try:
            async with asyncio.timeout(timeout_s):
                answer = await future
        finally:
            del self._waiting[number]
        if "error" in answer:
            raise CallRefused(f"{method}: {str(answer['error'].get('message', answer['error']))[:500]}")
        return answer.get("result", {})

    def end_session(self, session_id: str, reason: str) -> None:
        """Fail every pending and later call of a session whose page has ended."""
        self._gone_sessions[session_id] = reason
        for owner, future in self._waiting.values():
            if owner == session_id and not future.done():
                future.set_exception(BrowserGone(reason))

    def data_received(self, data: bytes) -> None:
        """Parse messages of the browser."""
        self._received += data
        while (end := self._received.find(0, self._searched)) >= 0:
            message = bytes(self._received[:end])
            del self._received[: end + 1]
            self._searched = 0
            self._take(message)
        self._searched = len(self._received)
        if self._searched > MAX_MESSAGE:
            self._reading.close()
            self._end("the browser sent a message that is too large: the deck has too much on one slide")

    def eof_received(self) -> None:
        """Note the end of the browser."""
        self._end("the browser has ended")

    def connection_lost(self, exc: Exception | None) -> None:
        """Note the end of the browser."""
        del exc
        self._end("the browser has ended")

    def _take(self, message: bytes) -> None:
        value = json.loads(message)
        if "id" in value:
            if (entry := self._waiting.get(value["id"])) and not entry[1].done():
                entry[1].set_result(value)
            return
        for handler in self._handlers.get((value.get("sessionId"), value.get("method")), ()):
            handler(value.get("params", {}))

    def _end(self, reason: str) -> None:
        if self._gone is None:
            self._gone = reason
        for _, future in self._waiting.values():
            if not future.done():
                future.set_exception(BrowserGone(reason))


class Session:
    """One page of the browser. `evaluate` runs in an isolated world, which page scripts cannot poison."""

    def __init__(self, connection: Connection, session_id: str, target_id: str) -> None:
        self.connection = connection
        self.id = session_id
        self.target_id = target_id
        self.frame_id = ""
        self.world: int | None = None
        """The isolated world's execution context, once it was entered."""

    async def call(
        self, method: str, params: dict[str, Any] | None = None, *, timeout_s: float = CALL_TIMEOUT_S
    ) -> Any:
        """Send a command to this page and return its result. Raises CallRefused, BrowserGone, TimeoutError."""
        return await self.connection.call(method, params, session_id=self.id, timeout_s=timeout_s)

    def post(self, method: str, params: dict[str, Any] | None = None) -> None:
        """Send a command to this page without waiting for its answer."""
        self.connection.post(method, params or {}, self.id)

    def on(self, method: str, handler: Callable[[dict[str, Any]], None]) -> None:
        """Register a handler for an event of this page."""
        self.connection.on(method, handler, self.id)

    async def enter_world(self) -> None:
        """Create the isolated world in the current document; needed again after each navigation."""
        params = {"frameId": self.frame_id, "worldName": WORLD, "grantUniveralAccess": False}
        self.world = (await self.call("Page.createIsolatedWorld", params))["executionContextId"]

    async def evaluate(self, expression: str, *, timeout_s: float = CALL_TIMEOUT_S) -> Any:
        """Run JavaScript in the isolated world and return its value, awaited. Raises ScriptFailed with its error."""
        return (await self._run(expression, by_value=True, timeout_s=timeout_s)).get("value")

    async def evaluate_node(self, expression: str, *, timeout_s: float = CALL_TIMEOUT_S) -> int:
        """Run JavaScript that returns an element, and return its backend node id."""
        found = await self._run(expression, by_value=False, timeout_s=timeout_s)
        if "objectId" not in found:
            raise ScriptFailed("the script gave no element")
        described = await self.call("DOM.describeNode", {"objectId": found["objectId"]})
        self.post("Runtime.releaseObject", {"objectId": found["objectId"]})
        number: int = described["node"]["backendNodeId"]
        return number

    async def _run(self, expression: str, *, by_value: bool, timeout_s: float) -> dict[str, Any]:
        if self.world is None:
            await self.enter_world()
        params = {"expression": expression, "contextId": self.world, "returnByValue": by_value, "awaitPromise": True}
        answer = await self.call("Runtime.evaluate", params, timeout_s=timeout_s)
        if details := answer.get("exceptionDetails"):
            thrown = details.get("exception", {})
            raise ScriptFailed(str(thrown.get("description") or thrown.get("value") or details.get("text"))[:500])
        result: dict[str, Any] = answer["result"]
        return result
