"""The settings themselves, table by table: names, kinds, defaults, and a sentence for the reference."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, SecretStr

from warren.domain.values import GIB, KIB, MIB, Limits
from warren.engines.gpus import cdi
from warren.settings.kinds import Group, Hosts, Names, Networks, Origins, Seconds, Size

_DEFAULTS = Limits()


class LimitSettings(Group):
    """What a sandbox may use when the caller does not say."""

    memory_bytes: Size = Field(default=_DEFAULTS.memory_bytes, description="Memory of one sandbox.")
    cpus: float = Field(default=_DEFAULTS.cpus, description="Processors of one sandbox.")
    pids: int = Field(default=_DEFAULTS.pids, description="Processes and threads of one sandbox.")
    disk_bytes: Size = Field(default=_DEFAULTS.disk_bytes, description="Size of one workspace.")
    disk_inodes: int = Field(default=_DEFAULTS.disk_inodes, description="Files and folders of one workspace.")
    open_files: int = Field(default=_DEFAULTS.open_files, description="Open descriptors of one process.")
    checkpoint_bytes: Size = Field(
        default=_DEFAULTS.checkpoint_bytes,
        description="A kernel with more private memory than this is not checkpointed.",
    )
    checkpoints: int = Field(default=_DEFAULTS.checkpoints, description="Cells that a rollback can reach back.")

    def build(self) -> Limits:
        """Build the limits of a sandbox. Raises InvalidRequest for what is out of range."""
        return Limits(**self.model_dump())


class ServeSettings(Group):
    """How the service meets its clients."""

    host: str = Field(default="127.0.0.1", description="Address to listen on.")
    port: int = Field(default=8000, ge=0, le=65_535, description="Port to listen on; 0 takes a free one.")
    auth: bool = Field(default=True, description="Ask for an API key. Off only on a loopback address.")
    cors_origins: Origins = Field(
        default=(), description="Web pages that may call the API from a browser, such as `https://app.example.com`."
    )
    docs: bool | None = Field(
        default=None, description="Serve `/docs` and `/openapi.json`; unless set, everywhere but in production."
    )
    trusted_proxies: Networks = Field(
        default=(), description="Proxies, by address or network, whose `X-Forwarded-For` and `-Proto` are believed."
    )
    body_bytes: Size = Field(default=16 * MIB, description="Largest JSON body of a request.")
    upload_bytes: Size = Field(default=8 * GIB, description="Largest file or archive of an upload.")
    ports_url: Hosts = Field(
        default="",
        description="Where servers inside sandboxes have hosts of their own, such as `https://*.apps.example.com`.",
    )
    port_answer_s: float = Field(
        default=300, gt=0, le=86_400, description="Seconds that a server inside a sandbox may take to begin an answer."
    )
    link_max_s: float = Field(
        default=7 * 86_400, ge=1, le=366 * 86_400, description="Seconds that a shared link may be good for, at most."
    )
    heartbeat_s: float = Field(
        default=15, ge=0.1, le=3600, description="Quiet seconds of an event stream before it says that it lives."
    )
    drain_s: float = Field(
        default=20, ge=0, le=3600, description="Seconds that running requests get to finish when the service stops."
    )


class LifeSettings(Group):
    """How long sandboxes live when nobody says otherwise."""

    idle_timeout_s: Seconds = Field(
        default=1800, gt=0, description="Seconds without use after which a sandbox is stopped."
    )
    max_lifetime_s: Seconds = Field(
        default=None, gt=0, description="Seconds after which a sandbox is destroyed, used or not."
    )
    stopped_lifetime_s: Seconds = Field(
        default=7 * 86_400, gt=0, description="Seconds after which a stopped sandbox is destroyed, workspace and all."
    )


class PoolSettings(Group):
    """Sandboxes that wait for their owner, so that a create takes milliseconds."""

    size: int = Field(default=2, ge=0, le=1000, description="Warm sandboxes of each pooled image and storage.")
    images: Names = Field(default=(), description="Images to keep warm; when empty, the default image.")


class QuotaSettings(Group):
    """What one principal may have at once; 0 is no limit."""

    sandboxes: int = Field(default=500, ge=0, description="Sandboxes of one principal, stopped ones too.")
    active: int = Field(default=200, ge=0, description="Running sandboxes of one principal.")
    memory_bytes: Size = Field(default=0, ge=0, description="Memory limits of a principal's running sandboxes, added.")
    disk_bytes: Size = Field(default=0, ge=0, description="Workspace sizes of one principal's sandboxes, added.")
    gpus: int = Field(default=0, ge=0, description="GPUs of one principal's running sandboxes, added.")
    executions: int = Field(default=64, ge=0, description="Executions of one principal at once.")
    record_bytes: Size = Field(
        default=256 * MIB, ge=0, description="Records of one principal's executions, added; the oldest go."
    )
    file_bytes: Size = Field(
        default=GIB, ge=0, description="Files that the service keeps for one principal, apart from sandboxes, added."
    )
    skills: int = Field(default=200, ge=0, description="Skills that one principal keeps.")
    skill_bytes: Size = Field(default=256 * MIB, ge=0, description="Packages of one principal's skills, added.")
    requests_per_minute: int = Field(default=0, ge=0, description="Requests of one principal in a minute.")
    creates_per_minute: int = Field(default=1200, ge=0, description="Sandboxes that one principal makes in a minute.")


class CapacitySettings(Group):
    """What everybody together may have at once; 0 is no limit."""

    sandboxes: int = Field(default=0, ge=0, description="Sandboxes of everybody, stopped ones too.")
    active: int = Field(default=2000, ge=0, description="Running sandboxes of everybody.")
    memory_bytes: Size = Field(default=0, ge=0, description="Memory limits of all running sandboxes, added.")
    disk_bytes: Size = Field(default=0, ge=0, description="Workspace sizes of all sandboxes, added.")
    gpus: int = Field(
        default=0, ge=0, description="GPUs of all running sandboxes, added; a GPU that two share counts twice."
    )
    file_bytes: Size = Field(
        default=16 * GIB, ge=0, description="Files that the service keeps for everybody, apart from sandboxes, added."
    )
    executions: int = Field(default=256, ge=0, description="Executions at once.")
    creates: int = Field(default=8, ge=1, description="Sandboxes being made at once; further ones wait.")
    waiting: int = Field(default=512, ge=0, description="Requests that wait for one of these; further ones get 503.")
    wait_s: float = Field(default=30, ge=0, description="Seconds that a request waits before it gets 503.")


class RecordSettings(Group):
    """How much is written down."""

    output_bytes: Size = Field(
        default=32 * KIB, le=MIB, description="Kept of the code, stdout and stderr of an execution, each."
    )
    audit_output_bytes: Size = Field(default=4 * KIB, le=64 * KIB, description="The same, in the audit record.")
    executions: int = Field(default=200, ge=1, description="Executions kept for one sandbox; the oldest go.")
    audit_days: int | None = Field(
        default=None, ge=1, description="Days after which rows of the audit record are cut off its beginning."
    )


class GpuSettings(Group):
    """The GPUs of this host that sandboxes can have."""

    cdi_dirs: Names = Field(
        default=cdi.DIRS, description="Folders of CDI specs, which say what devices there are; a later one wins."
    )


class LogSettings(Group):
    """What the service says on standard error."""

    format: Literal["auto", "text", "json"] = Field(
        default="auto", description="`text`, `json`, or `auto`: words on a terminal and JSON elsewhere."
    )
    level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="The least that is logged; `info` has a line for each request."
    )


class TracingSettings(Group):
    """Traces of requests, for OpenTelemetry; needs the extra `warren-sandbox[otel]`."""

    endpoint: str = Field(
        default="",
        description="Where traces go, OTLP over HTTP, such as `http://127.0.0.1:4318/v1/traces`; empty is off.",
    )
    headers: SecretStr | None = Field(default=None, description="Headers for the endpoint, as `name=value,name=value`.")
    service_name: str = Field(default="warren", min_length=1, description="What the service is called in traces.")
    sample_ratio: float = Field(
        default=1.0, ge=0, le=1, description="Part of the traces that are kept, chosen by their id."
    )
