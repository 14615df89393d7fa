"""The service behind the stdio server: MCP's current revision over HTTP, one request a call."""

from __future__ import annotations

import contextlib
import json
from typing import TYPE_CHECKING, Any

import anyio
import httpx
from mcp.shared.exceptions import MCPError
from mcp.shared.inbound import (
    MCP_METHOD_HEADER,
    MCP_NAME_HEADER,
    MCP_PROTOCOL_VERSION_HEADER,
    NAME_BEARING_METHODS,
    encode_header_value,
)
from mcp_types import (
    CLIENT_CAPABILITIES_META_KEY,
    CLIENT_INFO_META_KEY,
    INTERNAL_ERROR,
    PROTOCOL_VERSION_META_KEY,
)
from mcp_types.version import LATEST_MODERN_VERSION

from warren import __version__
from warren.domain.errors import Error, Overloaded
from warren.mcp_server.use import EPHEMERAL_HEADER, SESSION_HEADER, session_key
from warren.sdk._async.connection import AsyncConnection
from warren.sdk.failures import NotUnderstood, ServiceUnreachable, build_error
from warren.sdk.request import Request, api
from warren.sdk.retries import Retries

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
    from contextlib import AbstractAsyncContextManager

    Progress = Callable[[float, float | None, str | None], Awaitable[None]]

_TIMEOUT_S = 60.0
_PATIENCE_S = 15.0
"""How long a call waits for the service: clients give up after 30 or 60 seconds, and would not hear why."""
_AGAIN_S = 15.0
_DELETE_S = 10.0
_ONCE = Retries(most=0)
_PROBLEM = "application/problem+json"
_STATUSES = (400, 404)
"""Statuses of answers that carry an error of the protocol."""


class Upstream:
    """The service that calls go to. `run` runs beside them: it finds the service, and a new one when that ends."""

    def __init__(
        self,
        reach: Callable[[], AbstractAsyncContextManager[str]],
        *,
        api_key: str | None,
        session: str,
        is_kept: bool,
        is_orphan: Callable[[str], bool] | None = None,
        patience_s: float = _PATIENCE_S,
    ) -> None:
        self._reach = reach
        self._is_orphan = is_orphan
        """Recognises, by their keys, sandboxes of killed commands like this; None where we may not delete them."""
        self._api_key = api_key
        self._session = session
        self._patience_s = patience_s
        self._doing = "the service is starting"
        self._is_kept = is_kept
        self._is_used = False
        self._connection: AsyncConnection | None = None
        self._changed = anyio.Event()
        self._wanted = anyio.Event()
        self._failure: Exception | None = None
        self._scope = anyio.CancelScope()
        self._is_ending = False

    async def run(self) -> None:
        """Connect to one service after another until `end`. Not cancelled from outside: it cleans up in order."""
        with anyio.CancelScope(shield=True) as self._scope:
            while not self._is_ending:
                self._wanted = anyio.Event()
                try:
                    async with self._reach() as url:
                        await self._serve(AsyncConnection(url, self._api_key, timeout=_TIMEOUT_S, retries=_ONCE))
                except Exception as exc:  # noqa: BLE001 - the next call gets it, and starts a new search
                    self._say(None, exc)
                    await self._wanted.wait()

    def end(self) -> None:
        """End `run`: at once while it looks for a service, else after its cleanup."""
        self._is_ending = True
        if self._connection is None:
            self._scope.cancel()
        self._wanted.set()

    async def _serve(self, connection: AsyncConnection) -> None:
        self._say(connection, None)
        await self._sweep(connection)
        await self._wanted.wait()
        self._connection = None
        await self._forget(connection)
        await connection.close()

    def _say(self, connection: AsyncConnection | None, failure: Exception | None) -> None:
        self._connection, self._failure = connection, failure
        self._changed.set()
        self._changed = anyio.Event()

    def tell(self, doing: str) -> None:
        """Note what the search for a service waits for, as a sentence without its end."""
        self._doing = doing

    async def _current(self) -> AsyncConnection:
        if self._failure is not None:
            self._failure = None
            self._wanted.set()
        with anyio.move_on_after(self._patience_s):
            while self._connection is None:
                if self._failure is not None:
                    raise self._failure
                await self._changed.wait()
        if self._connection is None:
            raise Overloaded(f"Not done yet: {self._doing}", retry_after_s=_AGAIN_S)
        return self._connection

    async def ask(self, method: str, params: Mapping[str, Any], progress: Progress | None = None) -> dict[str, Any]:
        """Return the result of a request. Raises MCPError, and Error where there is no service."""
        for is_last in (False, True):
            connection = await self._current()
            try:
                return await self._ask(connection, method, params, progress)
            except ServiceUnreachable as error:
                if self._connection is connection:
                    self._connection = None
                    self._wanted.set()
                # Only a request that never arrived is sent again: another may have been done.
                if is_last or not isinstance(error.__cause__, httpx.ConnectError):
                    raise
        raise AssertionError

    async def _ask(
        self, connection: AsyncConnection, method: str, params: Mapping[str, Any], progress: Progress | None
    ) -> dict[str, Any]:
        self._is_used = self._is_used or method != "tools/list"
        async with connection.open(self._build(method, params, progress is not None)) as answer:
            kind = answer.headers.get("content-type", "")
            if kind.startswith(_PROBLEM):
                if answer.status_code == 404:
                    raise NotUnderstood(f"the service at {connection.address} has no MCP: see its setting mcp.enabled")
                raise build_error(answer.status_code, answer.headers, await answer.aread())
            if kind.startswith("text/event-stream"):
                return await _read_events(answer, progress)
            return _unwrap(_parse(await answer.aread(), str(connection.address)))

    def _build(self, method: str, params: Mapping[str, Any], with_progress: bool) -> Request:
        meta: dict[str, Any] = {
            PROTOCOL_VERSION_META_KEY: LATEST_MODERN_VERSION,
            CLIENT_INFO_META_KEY: {"name": "warren mcp", "version": __version__},
            CLIENT_CAPABILITIES_META_KEY: {},
        }
        if with_progress:
            meta["progressToken"] = 1
        headers = {
            "Accept": "application/json, text/event-stream",
            MCP_PROTOCOL_VERSION_HEADER: LATEST_MODERN_VERSION,
            MCP_METHOD_HEADER: method,
            SESSION_HEADER: self._session,
            EPHEMERAL_HEADER: "false" if self._is_kept else "true",
        }
        if method in NAME_BEARING_METHODS:
            headers[MCP_NAME_HEADER] = encode_header_value(str(params[NAME_BEARING_METHODS[method]]))
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": meta}}
        return Request(method="POST", path="/mcp", json=body, headers=headers, accepts=_STATUSES, read_timeout_s=None)

    async def _forget(self, connection: AsyncConnection) -> None:
        """Delete the sandbox, unless it is kept; where the service is gone, the next command does (`_sweep`)."""
        if self._is_kept or not self._is_used or not self._is_ending:
            return
        await _delete(connection, {"session_key": session_key(self._session)}, lambda _: True)

    async def _sweep(self, connection: AsyncConnection) -> None:
        """Delete the sandboxes of commands like this that were killed before they could."""
        if self._is_orphan is not None:
            await _delete(connection, {"metadata": "dialect=mcp", "limit": 200}, self._is_orphan)


async def _delete(connection: AsyncConnection, query: dict[str, Any], is_meant: Callable[[str], bool]) -> None:
    with anyio.move_on_after(_DELETE_S), contextlib.suppress(Error):
        found = await connection.ask_json(api("GET", "sandboxes", params=query))
        for each in found["items"]:
            if is_meant(str(each["session_key"])):
                await connection.ask(api("DELETE", "sandboxes", each["id"]))


async def _read_events(answer: httpx.Response, progress: Progress | None) -> dict[str, Any]:
    """Read a stream to its answer, and pass on progress."""
    async for message in _messages(answer):
        if "id" in message:
            return _unwrap(message)
        params = message.get("params") or {}
        if message.get("method") == "notifications/progress" and progress is not None:
            await progress(float(params.get("progress", 0)), params.get("total"), params.get("message"))
    raise ServiceUnreachable("the service ended before this was done: see what became of it, and call again")


async def _messages(answer: httpx.Response) -> AsyncIterator[dict[str, Any]]:
    async for line in answer.aiter_lines():
        if line.startswith("data:"):
            yield json.loads(line[5:])


def _parse(body: bytes, address: str) -> dict[str, Any]:
    try:
        message: Any = json.loads(body)
    except ValueError:
        message = None
    if not isinstance(message, dict):
        raise NotUnderstood(f"what answers at {address} is no Warren: check the address")
    return message


def _unwrap(message: dict[str, Any]) -> dict[str, Any]:
    error = message.get("error")
    if error is not None:
        raise MCPError(int(error.get("code", INTERNAL_ERROR)), str(error.get("message", "")), error.get("data"))
    result: dict[str, Any] = message.get("result") or {}
    # `_meta` is of the server that answers: this one sets its own.
    result.pop("_meta", None)
    return result
