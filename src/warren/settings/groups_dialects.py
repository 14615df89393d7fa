"""The settings of the dialects: which are served, to whom, and what each original let its operators choose."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from warren.domain.values import MIB
from warren.settings.kinds import Group, Names, Size


class DialectSettings(Group):
    """What every dialect has."""

    enabled: bool = Field(default=True, description="Serve this dialect.")
    open: bool = Field(
        default=False,
        description="Ask its clients for no key, on a loopback address only: all of them are one principal.",
    )


class OtariSettings(DialectSettings):
    """Sessions with a Python that remembers, and Anthropic-shaped results."""

    idle_timeout_s: int = Field(
        default=900, ge=1, le=366 * 86_400, description="Seconds without use after which a session is gone."
    )
    max_lifetime_s: int = Field(
        default=7200,
        ge=1,
        le=366 * 86_400,
        description="Seconds after which a session is gone; none may have more.",
    )
    memory_bytes: Size = Field(
        default=1536 * MIB, ge=64 * MIB, description="Memory of a session, within what its tenant may have."
    )
    output_bytes: Size = Field(
        default=MIB, ge=1024, le=3 * MIB // 2, description="Answered of stdout and of stderr, each: the beginning."
    )
    upload_bytes: Size = Field(default=100 * MIB, ge=1, description="Largest file of an upload.")
    callback_hosts: Names = Field(
        default=(),
        description="Hosts, addresses and networks besides the public ones that tools of clients may be called at.",
    )


class OnyxSettings(DialectSettings):
    """Programs with files, one sandbox each, and sessions of bash."""

    max_timeout_ms: int = Field(
        default=60_000, ge=1, le=86_400_000, description="Milliseconds that a program or command may ask for."
    )
    output_bytes: int = Field(
        default=1_000_000, ge=64, le=1_500_000, description="Answered of stdout and of stderr, each; the rest is cut."
    )
    file_bytes: Size = Field(default=100 * MIB, ge=1, description="Largest file of an upload.")
    file_ttl_s: float = Field(
        default=3600, gt=0, le=366 * 86_400, description="Seconds that an uploaded file, or a program's, is kept."
    )
    image: str = Field(default="", description="The image of its sandboxes; when empty, the default image.")
    network: Literal["none", "packages", "open"] = Field(
        default="none",
        description="What sessions with `network_enabled` may reach: `none`, `packages` or `open`.",
    )
    memory_bytes: Size = Field(
        default=0,
        ge=0,
        description="Memory of a sandbox, within what its tenant may have; 0 is as for every other sandbox.",
    )


class ChatuiSettings(DialectSettings):
    """Containers, with what a program leaves in `/tmp/output`."""

    idle_timeout_s: int = Field(
        default=1200, ge=1, le=366 * 86_400, description="Seconds without use after which a container is gone."
    )
    max_lifetime_s: int = Field(
        default=3600, ge=1, le=366 * 86_400, description="Seconds after which a container is gone, used or not."
    )
    executions_per_container: int = Field(
        default=100, ge=0, description="Executions after which a container is removed; 0 is no limit."
    )
    containers_per_principal: int = Field(
        default=3, ge=0, description="Containers of one principal at once; 0 is no limit."
    )
    containers: int = Field(default=100, ge=0, description="Containers of everybody at once; 0 is no limit.")
    executions_per_minute: int = Field(
        default=30, ge=0, description="Executions of one principal in a minute; 0 is no limit."
    )
    creates_per_minute: int = Field(
        default=10, ge=0, description="Containers that one principal makes in a minute; 0 is no limit."
    )
    timeout_s: int = Field(default=30, ge=1, description="Seconds of an execution that asks for none.")
    max_timeout_s: int = Field(default=120, ge=1, le=86_400, description="Seconds that an execution may ask for.")
    timeout_removes: bool = Field(
        default=False, description="Remove the container of an execution that ran too long, as the original did."
    )
    memory_bytes: Size = Field(
        default=512 * MIB,
        ge=0,
        description="Memory of a container, within what its tenant may have; 0 is as for every other sandbox.",
    )
    output_chars: int = Field(
        default=100_000, ge=1000, le=375_000, description="Characters answered of stdout and of stderr, each."
    )
    body_bytes: Size = Field(default=32 * MIB, ge=1024, description="Largest body of a request.")
    input_files: int = Field(default=10, ge=0, description="Files that an execution may be given.")
    input_file_bytes: Size = Field(default=5 * MIB, ge=1, description="Largest of them.")
    input_bytes: Size = Field(default=20 * MIB, ge=1, description="All of them together.")
    output_file_bytes: Size = Field(default=10 * MIB, ge=1, description="Largest file answered of `/tmp/output`.")
    output_bytes: Size = Field(
        default=25 * MIB, ge=1, le=256 * MIB, description="All files answered of `/tmp/output` together."
    )
    network: Literal["none", "packages", "open"] = Field(
        default="none",
        description="What containers with `enable_network` may reach: `none`, `packages` or `open`.",
    )
    allow_pip: bool = Field(default=False, description="Let executions ask for packages, installed before they run.")
    pip_packages: int = Field(default=5, ge=0, description="Packages that an execution may ask for.")
    allow_env: bool = Field(
        default=False, description="Let containers ask for the file of `env_file`: whatever runs there can read it."
    )
    env_file: str = Field(default="", description="A file of this host that such a container gets as `~/.env`.")
    latex_image: str = Field(
        default="office", description="What LaTeX documents are compiled in, if it is built; else the usual image."
    )
    latex_timeout_s: int = Field(default=120, ge=1, le=3600, description="Seconds that a LaTeX document may take.")
    latex_body_bytes: Size = Field(default=34_583_336, ge=1024, description="Largest body of a LaTeX request.")


class DialectsSettings(Group):
    """The APIs of other products that their clients find here."""

    otari: OtariSettings = Field(default=OtariSettings(), description="otari's sessions, under `/sessions`.")
    onyx: OnyxSettings = Field(default=OnyxSettings(), description="Onyx's code interpreter, under `/v1`.")
    chatui: ChatuiSettings = Field(default=ChatuiSettings(), description="ChatUI's gateway: `/containers`, `/execute`.")
