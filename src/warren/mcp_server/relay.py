"""The stdio server: it serves one client, and passes the work to a service."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import anyio
from mcp.shared.exceptions import MCPError
from mcp_types import INTERNAL_ERROR, CallToolResult, ListResourcesResult, ListToolsResult, ReadResourceResult

from warren.domain.errors import ConfigError, Error
from warren.mcp_server.answers import explain, refuse
from warren.mcp_server.server import build_server, choose_tools
from warren.mcp_server.stdio import stdio_streams

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from mcp.server.context import ServerRequestContext
    from mcp_types import CallToolRequestParams, PaginatedRequestParams, ReadResourceRequestParams

    from warren.mcp_server.upstream import Upstream
    from warren.settings import Settings

    Context = ServerRequestContext[Any, Any]


class Relay:
    """Answers lists of tools itself, so that a client starts at once, and asks the service for the rest."""

    def __init__(self, upstream: Upstream, settings: Settings | None) -> None:
        self._upstream = upstream
        self._settings = settings
        """Settings of the local service; None for a remote one, which lists its own tools."""

    async def serve(self, reader: int, writer: int) -> None:
        """Serve the client until it leaves."""
        server = build_server(self)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._upstream.run)
            try:
                async with stdio_streams(reader, writer) as (incoming, outgoing):
                    await server.run(incoming, outgoing, server.create_initialization_options())
            finally:
                self._upstream.end()

    async def list_tools(self, _context: Context, _params: PaginatedRequestParams | None) -> ListToolsResult:
        """List the tools."""
        if self._settings is not None:
            return ListToolsResult(tools=[tool.render() for tool in choose_tools(self._settings).values()])
        return ListToolsResult.model_validate(await _or_error(self._upstream.ask("tools/list", {})))

    async def call_tool(self, context: Context, params: CallToolRequestParams) -> CallToolResult:
        """Use a tool."""
        meta: Any = context.meta or {}
        wants = "progress_token" in meta or "progressToken" in meta
        asked = {"name": params.name, "arguments": params.arguments or {}}
        try:
            progress = context.session.report_progress if wants else None
            return CallToolResult.model_validate(await self._upstream.ask("tools/call", asked, progress))
        except (Error, ConfigError) as error:
            return refuse(explain(error) if isinstance(error, Error) else str(error))

    async def list_resources(self, _context: Context, _params: PaginatedRequestParams | None) -> ListResourcesResult:
        """List files."""
        return ListResourcesResult.model_validate(await _or_error(self._upstream.ask("resources/list", {})))

    async def read_resource(self, _context: Context, params: ReadResourceRequestParams) -> ReadResourceResult:
        """Read a file."""
        asking = self._upstream.ask("resources/read", {"uri": str(params.uri)})
        return ReadResourceResult.model_validate(await _or_error(asking))


async def _or_error(asking: Awaitable[dict[str, Any]]) -> dict[str, Any]:
    try:
        return await asking
    except (Error, ConfigError) as error:
        raise MCPError(INTERNAL_ERROR, str(error)) from error
