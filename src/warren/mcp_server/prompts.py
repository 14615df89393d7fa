"""Prompts: an empty list, for clients that ask although none are announced."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_PARAMS, ListPromptsResult

if TYPE_CHECKING:
    from mcp.server.context import ServerRequestContext
    from mcp_types import GetPromptRequestParams, PaginatedRequestParams

    Context = ServerRequestContext[Any, Any]


async def list_prompts(_context: Context, _params: PaginatedRequestParams | None) -> ListPromptsResult:
    """Return an empty list."""
    return ListPromptsResult(prompts=[])


async def get_prompt(_context: Context, params: GetPromptRequestParams) -> NoReturn:
    """Raise MCPError: there are none."""
    raise MCPError(INVALID_PARAMS, f"There is no prompt {params.name[:100]!r}, nor any other: use the tools.")
