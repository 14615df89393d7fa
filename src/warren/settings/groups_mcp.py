"""Settings of the MCP server: transports, tools, and their sandboxes."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from warren.settings.kinds import Gpus, Group, Names


class McpSettings(Group):
    """MCP server: tools for models."""

    enabled: bool = Field(default=True, description="Serve MCP at `/mcp`.")
    sse: bool = Field(
        default=True,
        description="Also serve the transport of older clients: `/sse`, with `/messages/` for their requests.",
    )
    tools: Names = Field(default=(), description="Names of the tools to offer; when empty, all.")
    image: str = Field(default="", description="Image of its sandboxes; when empty, the default image.")
    egress: Literal["none", "packages", "open"] = Field(
        default="packages",
        description="Egress of its sandboxes, within that of their tenant: `none`, `packages` or `open`.",
    )
    gpus: Gpus = Field(
        default="auto",
        description="GPUs of its sandboxes: `auto` (all that exist), `none`, `all`, a number or names.",
    )
    sandbox_per_session: bool = Field(
        default=True,
        description="Give each session of streamable HTTP its own sandbox, removed with it, unless a call names one; "
        "otherwise all sessions of a principal share one.",
    )
    idle_timeout_s: int = Field(
        default=1800,
        ge=1,
        le=366 * 86_400,
        description="Seconds without use after which a sandbox is stopped or removed.",
    )
    max_timeout_s: int = Field(
        default=3600, ge=1, le=86_400, description="Longest timeout of a tool call, in seconds; 600 for `run_code`."
    )
    output_chars: int = Field(
        default=20_000,
        ge=1000,
        le=200_000,
        description="Characters of an output in a tool result: its beginning and its end.",
    )
    sessions: int = Field(default=1000, ge=1, le=100_000, description="Sessions of older clients at once.")
    own_sessions: int = Field(default=100, ge=1, le=100_000, description="The same, of one principal.")
    session_idle_s: int = Field(
        default=1800, ge=1, le=86_400, description="Seconds without a request after which such a session is closed."
    )
