"""Settings by table: names, types, defaults, and the descriptions of the reference."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, SecretStr

from warren.domain.values import GIB, KIB, MIB, Limits
from warren.engines.gpus import cdi
from warren.settings.kinds import (
    AUTO,
    AutoCount,
    AutoNumber,
    AutoSize,
    Group,
    Hosts,
    Names,
    Networks,
    Origins,
    Seconds,
    Size,
)

_DEFAULTS = Limits()


class LimitSettings(Group):
    """Default limits of a sandbox."""

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
    tmp_bytes: Size = Field(
        default=_DEFAULTS.tmp_bytes,
        description="Size of `/tmp`; its files count as memory. 0 is a quarter of the memory.",
    )

    def build(self) -> Limits:
        """Build the limits of a sandbox. Raises InvalidRequest for values out of range."""
        return Limits(**self.model_dump())


class MaximumSettings(Group):
    """Largest limits of one sandbox, for any caller; 0 is no limit."""

    memory_bytes: AutoSize = Field(
        default=AUTO,
        description="Most memory of one sandbox; `auto` is that of this machine, or of the service's control group.",
    )
    cpus: AutoNumber = Field(
        default=AUTO,
        description="Most processors of one sandbox; `auto` is those of this machine, or of the control group.",
    )
    pids: AutoCount = Field(
        default=AUTO,
        description="Most processes and threads of one sandbox; `auto` is a quarter of the kernel's `pid_max`.",
    )
    disk_bytes: AutoSize = Field(
        default=AUTO, description="Largest workspace; `auto` is half of the disk that holds `data_dir`."
    )


class DiskSettings(Group):
    """Space of the disk that is left free. Below it creates, starts and uploads are answered with 507."""

    free_bytes: AutoSize = Field(
        default=AUTO,
        description="Bytes of the disk of `data_dir` that stay free; `auto` is 5 % of it, at most 1 GiB. 0 is off.",
    )
    free_inodes: AutoCount = Field(
        default=AUTO,
        description="Inodes of that disk that stay free; `auto` is 1 % of them, at most 10000. 0 is off.",
    )


class ServeSettings(Group):
    """HTTP server."""

    host: str = Field(default="127.0.0.1", description="Address to listen on.")
    port: int = Field(default=8000, ge=0, le=65_535, description="Port to listen on; 0 takes a free one.")
    auth: bool = Field(default=True, description="Require an API key. Off only on a loopback address.")
    open_metrics: bool = Field(
        default=False, description="Serve `/metrics` without a key, for scrapers that have none."
    )
    cors_origins: Origins = Field(
        default=(), description="Web pages that may call the API from a browser, such as `https://app.example.com`."
    )
    docs: bool | None = Field(
        default=None, description="Serve `/docs` and `/openapi.json`; unless set, everywhere but in production."
    )
    trusted_proxies: Networks = Field(
        default=(), description="Proxies, by address or network, whose `X-Forwarded-For` and `-Proto` are trusted."
    )
    body_bytes: Size = Field(default=16 * MIB, description="Largest JSON body of a request.")
    upload_bytes: Size = Field(default=8 * GIB, description="Largest file or archive of an upload.")
    ports_url: Hosts = Field(
        default="",
        description="Wildcard host for servers inside sandboxes, such as `https://*.apps.example.com`.",
    )
    port_answer_s: float = Field(
        default=300, gt=0, le=86_400, description="Timeout for the first byte of a server inside a sandbox, in seconds."
    )
    link_max_s: float = Field(
        default=7 * 86_400, ge=1, le=366 * 86_400, description="Longest lifetime of a shared link, in seconds."
    )
    heartbeat_s: float = Field(
        default=15, ge=0.1, le=3600, description="Seconds of silence before an event stream sends a keep-alive."
    )
    drain_s: float = Field(
        default=20, ge=0, le=3600, description="Grace period of running requests at shutdown, in seconds."
    )


class LifeSettings(Group):
    """Default lifetimes of sandboxes."""

    idle_timeout_s: Seconds = Field(
        default=1800, gt=0, description="Seconds without use after which a sandbox is stopped."
    )
    max_lifetime_s: Seconds = Field(
        default=None, gt=0, description="Seconds after which a sandbox is destroyed, in use or not."
    )
    stopped_lifetime_s: Seconds = Field(
        default=7 * 86_400, gt=0, description="Seconds after which a stopped sandbox is destroyed, with its workspace."
    )


class PoolSettings(Group):
    """Warm sandboxes, so that a create takes milliseconds."""

    size: int = Field(default=2, ge=0, le=1000, description="Warm sandboxes per pooled image and storage.")
    images: Names = Field(default=(), description="Images to keep warm; when empty, the default image.")


class QuotaSettings(Group):
    """Quotas of one principal; 0 is no limit."""

    sandboxes: int = Field(default=500, ge=0, description="Sandboxes of one principal, stopped ones included.")
    active: int = Field(default=200, ge=0, description="Running sandboxes of one principal.")
    memory_bytes: Size = Field(
        default=0, ge=0, description="Sum of the memory limits of a principal's running sandboxes."
    )
    disk_bytes: Size = Field(default=0, ge=0, description="Sum of the workspace sizes of a principal's sandboxes.")
    gpus: int = Field(default=0, ge=0, description="GPUs of a principal's running sandboxes.")
    executions: int = Field(default=64, ge=0, description="Executions of one principal at once.")
    record_bytes: Size = Field(
        default=256 * MIB,
        ge=0,
        description="Total size of the records of a principal's executions; the oldest are removed.",
    )
    file_bytes: Size = Field(
        default=GIB, ge=0, description="Total size of a principal's stored files, which are outside sandboxes."
    )
    skills: int = Field(default=200, ge=0, description="Skills of one principal.")
    skill_bytes: Size = Field(
        default=256 * MIB, ge=0, description="Total size of the packages of a principal's skills."
    )
    requests_per_minute: int = Field(default=0, ge=0, description="Requests per minute of one principal.")
    creates_per_minute: int = Field(default=1200, ge=0, description="Sandboxes that one principal creates per minute.")


class CapacitySettings(Group):
    """Limits of all principals together; 0 is no limit."""

    sandboxes: int = Field(default=0, ge=0, description="Sandboxes of all principals, stopped ones included.")
    active: int = Field(default=2000, ge=0, description="Running sandboxes of all principals.")
    memory_bytes: Size = Field(default=0, ge=0, description="Sum of the memory limits of all running sandboxes.")
    disk_bytes: Size = Field(default=0, ge=0, description="Sum of the workspace sizes of all sandboxes.")
    gpus: int = Field(default=0, ge=0, description="GPUs of all running sandboxes; a GPU that two share counts twice.")
    file_bytes: Size = Field(default=16 * GIB, ge=0, description="Total size of the stored files of all principals.")
    executions: int = Field(default=256, ge=0, description="Executions at once.")
    creates: int = Field(default=8, ge=1, description="Sandboxes that are created at once; further ones wait.")
    waiting: int = Field(default=512, ge=0, description="Requests in the queue; further ones get 503.")
    wait_s: float = Field(default=30, ge=0, description="Seconds that a request waits before it gets 503.")


class RecordSettings(Group):
    """Records of executions and the audit record."""

    output_bytes: Size = Field(
        default=32 * KIB, le=MIB, description="Bytes kept of the code, stdout and stderr of an execution, each."
    )
    audit_output_bytes: Size = Field(default=4 * KIB, le=64 * KIB, description="The same, in the audit record.")
    executions: int = Field(default=200, ge=1, description="Executions kept per sandbox; the oldest are removed.")
    audit_days: int | None = Field(
        default=None, ge=1, description="Days that rows of the audit record are kept; none is for ever."
    )


class GpuSettings(Group):
    """GPUs of this host that sandboxes can have."""

    cdi_dirs: Names = Field(
        default=cdi.DIRS, description="Folders of CDI specs, which describe the devices; a later one wins."
    )


class LogSettings(Group):
    """Log on standard error."""

    format: Literal["auto", "text", "json"] = Field(
        default="auto", description="`text`, `json`, or `auto`: text on a terminal and JSON elsewhere."
    )
    level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="Lowest level that is logged; `info` has a line for each request."
    )


class TracingSettings(Group):
    """Traces of requests, for OpenTelemetry; needs the extra `warren-sandbox[otel]`."""

    endpoint: str = Field(
        default="",
        description="OTLP endpoint for traces, over HTTP, such as `http://127.0.0.1:4318/v1/traces`; empty is off.",
    )
    headers: SecretStr | None = Field(default=None, description="Headers for the endpoint, as `name=value,name=value`.")
    service_name: str = Field(default="warren", min_length=1, description="Name of the service in traces.")
    sample_ratio: float = Field(
        default=1.0, ge=0, le=1, description="Fraction of traces that are kept, chosen by their id."
    )
