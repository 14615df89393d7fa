"""The answers of the native API, each declared once: the OpenAPI document and the JSON come from the same fields.

`translate.py` gives the values that are not attributes of the domain's objects.
"""

from __future__ import annotations

from typing import Any, Generic, Literal, TypeVar

from pydantic import Field

from warren.domain.lifecycle import Status
from warren.domain.values import Cause, ExecKind, State, Storage
from warren.gateway.dialects.native.answers import OptionalTime, Shown, Time

T = TypeVar("T")


class ListOf(Shown, Generic[T]):
    """A part of a list."""

    items: list[T]
    total: int = Field(description="How many there are in all.")
    offset: int
    limit: int


class OwnerShown(Shown):
    """Whose it is."""

    tenant: str
    subject: str


class EgressRuleShown(Shown):
    """Something that a sandbox may reach."""

    host: str
    ports: list[int]
    methods: list[str] = Field(description="Of plain HTTP; empty is all, and TLS too.")


class EgressShown(Shown):
    """What a sandbox may reach, besides what it was granted for a while."""

    mode: Literal["none", "packages", "rules", "open"]
    rules: list[EgressRuleShown]


class SandboxShown(Shown):
    """A sandbox. Its environment is never shown."""

    id: str = Field(pattern=r"^sbx_[a-z0-9]{8,40}$")
    status: Status
    image: str
    image_digest: str
    engine: str
    owner: OwnerShown
    workspace_path: str
    storage: Storage
    memory_mb: int
    cpu: float
    pids: int
    disk_mb: int
    checkpoint_mb: int
    checkpoints: int
    egress: EgressShown
    network_enabled: bool = Field(description="Whether its egress allows anything.")
    gpus: list[str] = Field(description="The GPUs it has, by the names that CDI gives them.")
    idle_timeout_seconds: float | None = Field(description="Null: never stopped for being idle.")
    max_lifetime_seconds: float | None = Field(description="Null: lives until it is deleted.")
    session_key: str | None
    metadata: dict[str, str]
    created_at: Time
    last_activity_at: Time
    changed_at: Time = Field(description="When its status last changed.")
    expires_at: OptionalTime = Field(description="When it is destroyed, whatever it does.")
    reason: str | None = Field(description="Why it has its status, when no request caused it.")
    command_count: int = Field(description="Executions so far.")


class UsageShown(Shown):
    """What a sandbox uses now, as the operating system counts it. Null where this host cannot count it."""

    memory_bytes: int | None
    memory_peak_bytes: int | None
    cpu_us: int | None
    pids: int | None
    disk_bytes: int | None
    disk_inodes: int | None


class FileChangeShown(Shown):
    """A file that an execution changed."""

    path: str = Field(description="Relative to the workspace.")
    action: Literal["created", "modified", "deleted"]
    size_bytes: int


class DisplayShown(Shown):
    """Something that a cell showed: one value in one or more MIME types, binary ones as base64."""

    data: dict[str, str]
    metadata: dict[str, Any]
    is_result: bool = Field(description="Whether it is the value of the last expression.")


class ErrorShown(Shown):
    """The exception that ended a cell, as its kernel tells it."""

    name: str
    value: str
    traceback: str


class StartedShown(Shown):
    """An execution, whether it has finished or not."""

    execution_id: str = Field(pattern=r"^exe_[a-z0-9]{8,40}$")
    sandbox_id: str
    status: Literal["running", "finished"]
    kind: ExecKind
    kernel: str | None
    background: bool
    started_at: Time
    finished_at: OptionalTime


class ResultShown(Shown):
    """How an execution ended."""

    exit_code: int | None = Field(description="Of the process; minus N when signal N ended it.")
    cause: Cause | None = Field(description="Why it ended.")
    state: State | None = Field(description="What it did to the variables of its kernel.")
    timed_out: bool
    hint: str | None = Field(description="What to do next; null when all is well.")
    limit: float | None = Field(description="The limit that belongs to the cause: bytes, milliseconds or processes.")
    peak: float | None = Field(description="How much it used of that.")
    stdout: str = Field(description="Bytes that are no UTF-8 are U+FFFD here; with `encoding: base64` it is exact.")
    stderr: str
    encoding: Literal["utf-8", "base64"]
    stdout_bytes: int = Field(description="Written in all.")
    stderr_bytes: int
    truncated: bool = Field(description="Whether only head and tail of the output were kept.")
    displays: list[DisplayShown]
    error: ErrorShown | None
    files_changed: list[FileChangeShown]
    files_changed_complete: bool
    duration_ms: int
    cpu_ms: float
    cells_back: int = Field(description="Finished cells that were undone besides this one.")
    protected: bool = Field(description="Whether the kernel could be rolled back.")
    why_unprotected: str | None
    notes: list[str]


class ExecutionShown(ResultShown, StartedShown):
    """An execution and, once it has finished, how it ended. Until then those fields are null or empty."""


class RecordedExecution(ExecutionShown):
    """An execution as it was recorded, with the code that ran. Long code and output are cut."""

    code: str
    request_id: str


class OutputFileShown(Shown):
    """A file that the run created or modified, with its content."""

    path: str
    action: Literal["created", "modified"]
    size_bytes: int
    base64: str


class RunShown(ExecutionShown):
    """How a run in a sandbox of its own ended, and the files that it left."""

    files: list[OutputFileShown]
    files_complete: bool = Field(description="Whether every created or modified file is among them.")


class KernelShown(Shown):
    """A live interpreter."""

    name: str
    state: Literal["idle", "busy"]
    executed: int
    checkpoints: int = Field(description="Cells that a rollback can reach back now.")
    protected: bool
    private_bytes: int


class KernelsShown(Shown):
    """The kernels of a sandbox."""

    items: list[KernelShown]


class TerminalShown(Shown):
    """A program on a terminal."""

    name: str
    program: str
    cols: int
    rows: int
    attached: int = Field(description="How many clients are attached to it now.")
    age_seconds: float


class TerminalsShown(Shown):
    """The terminals of a sandbox."""

    items: list[TerminalShown]


class RolledBack(Shown):
    """How far a kernel went back."""

    cells_back: int


class AuditShown(Shown):
    """A row of the audit record."""

    seq: int
    at: Time
    action: str
    outcome: str
    tenant: str
    subject: str
    key_id: str
    request_id: str
    address: str
    sandbox_id: str
    execution_id: str
    details: dict[str, Any]
    previous: str = Field(description="Hash of the row before.")
    hash: str


class BuildShown(Shown):
    """How far the last build of an image by this service is, or how it ended."""

    phase: str = Field(
        description="waiting, system, resolving, downloading, installing, node, fonts, compiling, finishing or done."
    )
    detail: str
    done: int
    total: int = Field(description="0 when it is not known how much there is to do.")
    started_at: Time
    finished_at: OptionalTime
    error: str | None = Field(description="Why it failed.")


class ImageShown(Shown):
    """An image that sandboxes are made from."""

    name: str
    description: str
    aliases: list[str] = Field(description="Other names for it.")
    packages: list[str]
    digest: str
    state: Literal["built", "building", "not_built", "stale"] = Field(
        description="`stale`: an earlier build is there, but none of what the image is now."
    )
    is_default: bool
    size_bytes: int
    built_at: OptionalTime
    preload: list[str] = Field(description="Modules that are imported already when a sandbox starts.")
    stale: list[str] = Field(description="Digests of earlier builds that are still there.")
    build: BuildShown | None


class Freed(Shown):
    """What removing an image brought."""

    name: str
    freed_bytes: int


class ImagesShown(Shown):
    """The images there are."""

    items: list[ImageShown]
