"""The MCP server: the methods of the protocol, over a service."""

from __future__ import annotations

import contextlib
import logging
from typing import TYPE_CHECKING, Any, NoReturn

from mcp.server.lowlevel.server import Server
from mcp.shared.exceptions import MCPError
from mcp_types import INTERNAL_ERROR, INVALID_PARAMS, CallToolResult, ListPromptsResult, ListToolsResult
from pydantic import ValidationError

from warren import __version__
from warren.domain.errors import Error, suggest
from warren.mcp_server import original, resources, tools_files, tools_run, tools_sandbox
from warren.mcp_server.answer_memory import PENDING, WHY
from warren.mcp_server.answers import Failed, explain, refuse
from warren.mcp_server.use import Use

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mcp.server.context import ServerRequestContext
    from mcp_types import (
        CallToolRequestParams,
        GetPromptRequestParams,
        ListResourcesResult,
        PaginatedRequestParams,
        ReadResourceRequestParams,
        ReadResourceResult,
    )

    from warren.core.service import Service
    from warren.mcp_server.relay import Relay
    from warren.mcp_server.tool import Tool
    from warren.settings import Settings

    Context = ServerRequestContext[Any, Any]

_log = logging.getLogger(__name__)

NAME = "warren"
TITLE = "Warren sandboxes"
INSTRUCTIONS = (
    "Code runs in a sandbox of its own, with no way to this machine's files. Use run_python for anything in Python: "
    "variables stay between calls. Files live in /workspace and are shared by all tools. Where the network is closed, "
    "install_packages still works if the operator allows it."
)
TOOLS: dict[str, Tool] = {
    tool.name: tool for tool in (*tools_run.TOOLS, *tools_files.TOOLS, *original.TOOLS, *tools_sandbox.TOOLS)
}
"""All of them, in the order in which models see them."""
_SHOWN = 3


def choose_tools(settings: Settings) -> dict[str, Tool]:
    """Return the tools that the operator enabled."""
    chosen = settings.mcp.tools
    return {name: tool for name, tool in TOOLS.items() if not chosen or name in chosen}


def build_server(answers: Answers | Relay, **options: Any) -> Server[Any]:
    """Build the library's server; templates and prompts are the same for all."""
    server: Server[Any] = Server(
        NAME,
        version=__version__,
        title=TITLE,
        instructions=INSTRUCTIONS,
        on_list_tools=answers.list_tools,
        on_call_tool=answers.call_tool,
        on_list_resources=answers.list_resources,
        on_list_resource_templates=resources.list_templates,
        on_list_prompts=_list_prompts,
        on_get_prompt=_get_prompt,
        on_read_resource=answers.read_resource,
        **options,
    )
    # The gateway traces requests already.
    server.middleware.clear()
    return server


async def _list_prompts(_context: Context, _params: PaginatedRequestParams | None) -> ListPromptsResult:
    """Return an empty list: some clients ask although none are announced."""
    return ListPromptsResult(prompts=[])


async def _get_prompt(_context: Context, params: GetPromptRequestParams) -> NoReturn:
    raise MCPError(INVALID_PARAMS, f"There is no prompt {params.name[:100]!r}, nor any other: use the tools.")


class Answers:
    """Answers requests, each as its caller, which is in the request's state (`use.CALLER`)."""

    def __init__(self, service: Service, settings: Settings) -> None:
        self._service = service
        self._settings = settings
        self._tools = choose_tools(settings)
        self.under_way = 0
        """Calls under way."""
        self._listed = [tool.render() for tool in self._tools.values()]
        self._schemas = {tool.name: tool.input_schema for tool in self._listed}

    def build(self) -> Server[Any]:
        """Build the library's server over these."""
        return build_server(self, get_tool_input_schema=self._schemas.get)

    async def list_tools(self, _context: Context, _params: PaginatedRequestParams | None) -> ListToolsResult:
        """List the tools."""
        return ListToolsResult(tools=self._listed)

    async def call_tool(self, context: Context, params: CallToolRequestParams) -> CallToolResult:
        """Use a tool. A failure is an answer too: the model reads it and corrects itself."""
        tool = self._tools.get(params.name)
        if tool is None:
            return refuse(f"Unknown tool: {params.name[:100]}{suggest(params.name, self._tools)}")
        try:
            asked = tool.arguments.model_validate(params.arguments or {})
        except ValidationError as exc:
            return refuse(_explain_arguments(tool, exc))
        try:
            with self._counted():
                done = await tool.run(Use(self._service, self._settings, context), asked)
            return done if _fits(context, done) else refuse(WHY)
        except Failed as failed:
            return refuse(str(failed))
        except Error as error:
            return refuse(explain(error))
        except Exception as exc:  # noqa: BLE001 - an answer never has internals of the service
            _log.error("mcp.failed", extra={"tool": tool.name, "error": type(exc).__name__}, exc_info=exc)
            return refuse("The service failed: try again, and report it to its operator if it fails again.")

    async def list_resources(self, context: Context, _params: PaginatedRequestParams | None) -> ListResourcesResult:
        """List files."""
        with self._counted():
            return await resources.list_resources(Use(self._service, self._settings, context))

    async def read_resource(self, context: Context, params: ReadResourceRequestParams) -> ReadResourceResult:
        """Read a file."""
        with self._counted():
            read = await resources.read_resource(Use(self._service, self._settings, context), str(params.uri))
        if not _fits(context, read):
            raise MCPError(INTERNAL_ERROR, WHY)
        return read

    @contextlib.contextmanager
    def _counted(self) -> Iterator[None]:
        self.under_way += 1
        try:
            yield
        finally:
            self.under_way -= 1


def _fits(context: Context, answer: Any) -> bool:
    """Whether the answer fits into memory until it is read; streams of events count their own."""
    assert context.request is not None
    counted = context.request.scope["state"].get(PENDING)
    return counted is None or bool(counted.fits(answer))


def _explain_arguments(tool: Tool, exc: ValidationError) -> str:
    if tool.is_original:
        return f"Error executing tool {tool.name}: {exc}"
    found = exc.errors(include_url=False, include_input=False)
    named = "; ".join(f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in found[:_SHOWN])
    known = ", ".join(tool.arguments.model_fields)
    return f"The arguments of {tool.name} are not right: {named}. It takes: {known}."
