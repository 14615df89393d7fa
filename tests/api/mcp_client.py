"""Real MCP clients of a served service: the library's, over each transport and in each era of the protocol."""

from __future__ import annotations

import contextlib
import json
from typing import TYPE_CHECKING, Any

import anyio
import httpx2
from mcp.client.client import Client
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from mcp_types import CallToolResult

    from api.served import Served

MODERN, SESSION, SSE = "2026-07-28", "session", "sse"
EVERY = (MODERN, SESSION, SSE)
_S = 60.0


class Mcp:
    """Everything a test needs of one service's MCP."""

    def __init__(self, served: Served) -> None:
        self.served = served

    @contextlib.asynccontextmanager
    async def connect(self, who: str = "ann", by: str = MODERN, **headers: str) -> AsyncIterator[Client]:
        """Connect as a user, over a transport."""
        credentials = {"Authorization": f"Bearer {self.served.keys[who]}"} if who in self.served.keys else {}
        if by == SSE:
            async with Client(sse_client(f"{self.served.url}/sse", headers=credentials | headers)) as client:
                yield client
            return
        async with httpx2.AsyncClient(headers=credentials | headers, timeout=_S) as http:
            transport = streamable_http_client(f"{self.served.url}/mcp", http_client=http)
            async with Client(transport, mode="legacy" if by == SESSION else "auto") as client:
                yield client

    def talk(self, work: Callable[[Client], Awaitable[Any]], who: str = "ann", by: str = MODERN, **headers: str) -> Any:
        """Do something with a client of a user."""

        async def main() -> Any:
            async with self.connect(who, by, **headers) as client:
                return await work(client)

        try:
            return anyio.run(main)
        except BaseExceptionGroup as group:
            raise _find_first(group) from None

    def call(self, name: str, who: str = "ann", **arguments: Any) -> CallToolResult:
        """Use one tool."""

        async def work(client: Client) -> CallToolResult:
            return await client.call_tool(name, arguments)

        result: CallToolResult = self.talk(work, who)
        return result

    def post(self, body: object, who: str = "ann", path: str = "/mcp", **headers: str) -> Any:
        """Send something that no client would."""
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        named = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
        with self.served.client(who) as http:
            return http.post(f"{self.served.url}{path}", content=data, headers=named | headers)

    def clear(self) -> None:
        """Delete what tools made."""
        for who in ("ann", "bob"):
            with self.served.client(who) as http:
                for each in http.get("/sandboxes", params={"metadata": "dialect=mcp", "limit": 200}).json()["items"]:
                    http.delete(f"/sandboxes/{each['id']}")


def _find_first(error: BaseException) -> BaseException:
    """Return what went wrong, without the groups that the library's tasks wrap it in."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def text(result: CallToolResult) -> str:
    """Return what a tool said."""
    first = result.content[0]
    assert first.type == "text"
    return first.text


def told(result: CallToolResult) -> dict[str, Any]:
    """Return what a tool of the original's answered: one text of JSON, and the same as data."""
    (only,) = result.content
    assert only.type == "text"
    assert result.structured_content == {"result": only.text}
    value: dict[str, Any] = json.loads(only.text)
    assert json.dumps(value, indent=2) == only.text
    return value
