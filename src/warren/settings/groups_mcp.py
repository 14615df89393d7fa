"""The settings of the MCP server: whether it is served, which tools there are, and what their sandboxes are like."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from warren.settings.kinds import Gpus, Group, Names


class McpSettings(Group):
    """How models call Warren as tools."""

    enabled: bool = Field(default=True, description="Serve MCP at `/mcp`.")
    sse: bool = Field(
        default=True,
        description="Serve the transport of older clients too: `/sse`, with `/messages/` for what they say.",
    )
    tools: Names = Field(default=(), description="The tools that are offered, by name; when empty, all of them.")
    image: str = Field(default="", description="The image of its sandboxes; when empty, the default image.")
    egress: Literal["none", "packages", "open"] = Field(
        default="packages",
        description="What its sandboxes may reach, within what their tenant may: `none`, `packages` or `open`.",
    )
    gpus: Gpus = Field(
        default="auto",
        description="GPUs of its sandboxes: `auto` (all, or none where there are none), `none`, `all`, a number or "
        "names.",
    )
    sandbox_per_session: bool = Field(
        default=True,
        description="Give each session of streamable HTTP a sandbox of its own, gone with it, where a call names none; "
        "otherwise all of a principal's share one.",
    )
    idle_timeout_s: int = Field(
        default=1800,
        ge=1,
        le=366 * 86_400,
        description="Seconds without use after which a sandbox is stopped, or gone.",
    )
    max_timeout_s: int = Field(
        default=3600, ge=1, le=86_400, description="Seconds that a call of a tool may ask for; 600 for `run_code`."
    )
    output_chars: int = Field(
        default=20_000, ge=1000, le=200_000, description="Characters that a tool answers of an output: both ends of it."
    )
    sessions: int = Field(default=1000, ge=1, le=100_000, description="Sessions of older clients at once.")
    own_sessions: int = Field(default=100, ge=1, le=100_000, description="The same, of one principal.")
    session_idle_s: int = Field(
        default=1800, ge=1, le=86_400, description="Seconds without a request after which such a session is closed."
    )
