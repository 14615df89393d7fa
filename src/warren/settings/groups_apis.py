"""Settings of what is served besides the native API: the dialects, MCP and slides."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from warren.domain.values import GIB, MIB, Limits
from warren.settings.kinds import Gpus, Group, Names, Networks, Size


class DialectSettings(Group):
    """Settings of every dialect."""

    enabled: bool = Field(default=True, description="Serve this dialect.")
    open: bool = Field(
        default=False,
        description="Serve it without a key, on a loopback address only: all clients are one principal.",
    )
    networks: Networks = Field(
        default=(),
        description="Addresses and networks whose programs need no key: all of them are one principal.",
    )
    tenant: str = Field(default="default", min_length=1, max_length=64, description="Tenant of that principal.")
    subject: str = Field(
        default="", max_length=64, description="Its subject, which a key may share; when empty, `open:<dialect>`."
    )
    image: str = Field(default="", description="Image of its sandboxes; when empty, the default image.")


class OtariSettings(DialectSettings):
    """Sessions of a Python interpreter, with Anthropic-shaped results."""

    idle_timeout_s: int = Field(
        default=900, ge=1, le=366 * 86_400, description="Seconds without use after which a session is removed."
    )
    max_lifetime_s: int = Field(
        default=7200,
        ge=1,
        le=366 * 86_400,
        description="Seconds after which a session is removed, in use or not.",
    )
    memory_bytes: Size = Field(
        default=1536 * MIB, ge=64 * MIB, description="Memory of a session, within the limit of its tenant."
    )
    output_bytes: Size = Field(
        default=MIB,
        ge=1024,
        le=3 * MIB // 2,
        description="Bytes of stdout and of stderr in a response, each: the beginning.",
    )
    upload_bytes: Size = Field(default=100 * MIB, ge=1, description="Largest file of an upload.")
    images: Names = Field(
        default=(),
        description="Images that a client may name as `image`: `data`, or `their/name=data` where it has another name. "
        "Another name is ignored.",
    )
    callback_hosts: Names = Field(
        default=(),
        description="Hosts, addresses and networks of tool callbacks that are not public.",
    )


class OnyxSettings(DialectSettings):
    """Programs with files, one sandbox each, and sessions of bash."""

    max_timeout_ms: int = Field(
        default=60_000, ge=1, le=86_400_000, description="Longest timeout of a program or command, in milliseconds."
    )
    output_bytes: int = Field(
        default=1_000_000,
        ge=64,
        le=1_500_000,
        description="Bytes of stdout and of stderr in a response, each; the rest is cut.",
    )
    file_bytes: Size = Field(default=100 * MIB, ge=1, description="Largest file of an upload.")
    file_ttl_s: float = Field(
        default=3600, gt=0, le=366 * 86_400, description="Seconds that a file of an upload or of a program is kept."
    )
    network: Literal["none", "packages", "open"] = Field(
        default="none",
        description="Egress of sessions with `network_enabled`: `none`, `packages` or `open`.",
    )
    memory_bytes: Size = Field(
        default=0,
        ge=0,
        description="Memory of a sandbox, within the limit of its tenant; 0 is the default of all sandboxes.",
    )


class ChatuiSettings(DialectSettings):
    """Containers, with the files that a program leaves in `/tmp/output`."""

    idle_timeout_s: int = Field(
        default=1200, ge=1, le=366 * 86_400, description="Seconds without use after which a container is removed."
    )
    max_lifetime_s: int = Field(
        default=3600, ge=1, le=366 * 86_400, description="Seconds after which a container is removed, in use or not."
    )
    executions_per_container: int = Field(
        default=100, ge=0, description="Executions after which a container is removed; 0 is no limit."
    )
    containers_per_principal: int = Field(
        default=3, ge=0, description="Containers of one principal at once; 0 is no limit."
    )
    containers: int = Field(default=100, ge=0, description="Containers of all principals at once; 0 is no limit.")
    executions_per_minute: int = Field(
        default=30, ge=0, description="Executions per minute of one principal; 0 is no limit."
    )
    executions_window_s: int = Field(
        default=60, ge=1, le=86_400, description="Seconds for which these count, if not a minute."
    )
    creates_per_minute: int = Field(
        default=10, ge=0, description="Containers that one principal creates per minute; 0 is no limit."
    )
    creates_window_s: int = Field(
        default=60, ge=1, le=86_400, description="Seconds for which these count, if not a minute."
    )
    timeout_s: int = Field(default=30, ge=1, description="Default timeout of an execution, in seconds.")
    max_timeout_s: int = Field(default=120, ge=1, le=86_400, description="Longest timeout of an execution, in seconds.")
    timeout_removes: bool = Field(
        default=False, description="Remove the container of an execution that ran too long, as the original did."
    )
    memory_bytes: Size = Field(
        default=512 * MIB,
        ge=0,
        description="Memory of a container, within the limit of its tenant; 0 is the default of all sandboxes.",
    )
    output_chars: int = Field(
        default=100_000, ge=1000, le=375_000, description="Characters of stdout and of stderr in a response, each."
    )
    body_bytes: Size = Field(default=32 * MIB, ge=1024, description="Largest body of a request.")
    input_files: int = Field(default=10, ge=0, description="Input files of an execution.")
    input_file_bytes: Size = Field(default=5 * MIB, ge=1, description="Largest of them.")
    input_bytes: Size = Field(default=20 * MIB, ge=1, description="All of them together.")
    output_file_bytes: Size = Field(default=10 * MIB, ge=1, description="Largest file of `/tmp/output` in a response.")
    output_bytes: Size = Field(
        default=25 * MIB, ge=1, le=256 * MIB, description="Total size of the files of `/tmp/output` in a response."
    )
    network: Literal["none", "packages", "open"] = Field(
        default="none",
        description="Egress of containers with `enable_network`: `none`, `packages` or `open`.",
    )
    allow_pip: bool = Field(
        default=False, description="Allow executions to request packages, which are installed before they run."
    )
    pip_packages: int = Field(default=5, ge=0, description="Packages that an execution may request.")
    allow_env: bool = Field(
        default=False, description="Allow containers to request the file of `env_file`; all code in them can read it."
    )
    env_file: str = Field(default="", description="File of this host that such a container gets as `~/.env`.")
    public_beta: bool = Field(
        default=False,
        description="Refuse to start with what strangers must not have: no key, `allow_pip`, `allow_env`, a `network`.",
    )
    latex_image: str = Field(
        default="office", description="Image that compiles LaTeX documents, if it is built; else the default image."
    )
    latex_timeout_s: int = Field(default=120, ge=1, le=3600, description="Timeout of a LaTeX document, in seconds.")
    latex_body_bytes: Size = Field(default=34_583_336, ge=1024, description="Largest body of a LaTeX request.")


class DialectsSettings(Group):
    """APIs of other products."""

    otari: OtariSettings = Field(default=OtariSettings(), description="otari's sessions, under `/sessions`.")
    onyx: OnyxSettings = Field(default=OnyxSettings(), description="Onyx's code interpreter, under `/v1`.")
    chatui: ChatuiSettings = Field(default=ChatuiSettings(), description="ChatUI's gateway: `/containers`, `/execute`.")


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


class RenderSettings(Group):
    """HTML decks to PowerPoint, each in a sandbox of its own."""

    image: str = Field(default="office", description="Image with the browser.")
    version: Literal["v1", "v2"] = Field(
        default="v1", description="Default version: `v1` pictures of slides, `v2` editable slides."
    )
    warm: int = Field(default=1, ge=0, le=64, description="Sandboxes with a browser that is started ahead.")
    warm_s: float = Field(
        default=600, ge=0, le=86_400, description="Seconds after the last render that these stay ready."
    )
    at_once: int = Field(default=2, ge=1, le=256, description="Decks rendered at the same time.")
    wait_s: float = Field(
        default=0.5, ge=0, le=600, description="Seconds that a request waits for a slot before it is rejected."
    )
    per_minute: int = Field(default=10, ge=0, description="Decks per minute of one principal; 0 is no limit.")
    timeout_s: float = Field(default=180, gt=0, le=3600, description="Timeout of a deck, in seconds.")
    memory_bytes: Size = Field(default=1536 * MIB, ge=256 * MIB, description="Memory of one render.")
    cpus: float = Field(default=2.0, ge=0.05, le=1024, description="Processors of one render.")
    pids: int = Field(default=512, ge=64, le=32_768, description="Processes and threads of one render.")
    disk_bytes: Size = Field(default=GIB, ge=64 * MIB, description="Disk of one render.")
    body_bytes: Size = Field(default=180_000_000, ge=1024, description="Largest body of a request.")
    html_chars: int = Field(default=2_000_000, ge=1, description="Characters of a page.")
    files: int = Field(default=32, ge=0, le=1000, description="Files of a page.")
    file_bytes: Size = Field(default=25_000_000, ge=1, description="Largest of them.")
    files_bytes: Size = Field(default=120_000_000, ge=1, description="All of them together.")
    slides: int = Field(default=200, ge=1, le=2000, description="Slides of a deck.")
    output_bytes: Size = Field(default=220_000_000, ge=1, description="Largest archive in a response.")
    waiting: int = Field(default=100, ge=1, description="Unfinished background renders of all principals.")
    own_waiting: int = Field(default=10, ge=1, description="The same, of one principal.")
    keep_s: float = Field(
        default=3600, gt=0, le=366 * 86_400, description="Seconds that the result of a background render is kept."
    )

    def build_limits(self) -> Limits:
        """Build the limits of its sandboxes. Raises InvalidRequest for values out of range."""
        return Limits(
            memory_bytes=self.memory_bytes,
            cpus=self.cpus,
            pids=self.pids,
            disk_bytes=self.disk_bytes,
            checkpoints=0,
        )
