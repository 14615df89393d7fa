"""The answers of the native API.

The answer of an execution is a TypedDict, which `translate.py` builds: one declaration. The others are models for the
documentation; `translate.py` builds the same by hand, and a test compares.
"""

from __future__ import annotations

from typing import Annotated, Any, Generic, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, JsonValue, with_config
from typing_extensions import TypedDict

from warren.domain.lifecycle import Status
from warren.domain.values import Cause, ExecKind, State, Storage

T = TypeVar("T")

EncodingName = Literal["utf-8", "base64"]
ChangeAction = Literal["created", "modified", "deleted"]

_TIME: dict[str, JsonValue] = {"format": "date-time"}
_CLOSED = with_config(ConfigDict(extra="forbid"))


class Shown(BaseModel):
    """Something that is answered: all its fields are always there."""

    model_config = ConfigDict(extra="forbid")


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
    created_at: str = Field(json_schema_extra=_TIME)
    last_activity_at: str = Field(json_schema_extra=_TIME)
    changed_at: str = Field(json_schema_extra=_TIME, description="When its status last changed.")
    expires_at: str | None = Field(json_schema_extra=_TIME, description="When it is destroyed, whatever it does.")
    reason: str | None = Field(description="Why it is as it is, when nobody asked for it.")
    command_count: int = Field(description="Executions so far.")


class UsageShown(Shown):
    """What a sandbox uses now, as the operating system counts it. Null where this host cannot count it."""

    memory_bytes: int | None
    memory_peak_bytes: int | None
    cpu_us: int | None
    pids: int | None
    disk_bytes: int | None
    disk_inodes: int | None


@_CLOSED
class FileChangeShown(TypedDict):
    """A file that an execution changed."""

    path: Annotated[str, Field(description="Relative to the workspace.")]
    action: ChangeAction
    size_bytes: int


@_CLOSED
class DisplayShown(TypedDict):
    """Something that a cell showed: one value in one or more MIME types, binary ones as base64."""

    data: dict[str, str]
    metadata: dict[str, Any]
    is_result: Annotated[bool, Field(description="Whether it is the value of the last expression.")]


@_CLOSED
class ErrorShown(TypedDict):
    """The exception that ended a cell, as its kernel tells it."""

    name: str
    value: str
    traceback: str


class ExecutionHead(TypedDict):
    """The part of an execution that is known when it begins."""

    execution_id: Annotated[str, Field(pattern=r"^exe_[a-z0-9]{8,40}$")]
    sandbox_id: str
    status: Literal["running", "finished"]
    kind: ExecKind
    kernel: str | None
    background: bool
    started_at: Annotated[str, Field(json_schema_extra=_TIME)]
    finished_at: Annotated[str | None, Field(json_schema_extra=_TIME)]


class ResultShown(TypedDict):
    """The result of an execution."""

    exit_code: Annotated[int | None, Field(description="Of the process; minus N when signal N ended it.")]
    cause: Annotated[Cause | None, Field(description="Why it ended.")]
    state: Annotated[State | None, Field(description="What it did to the variables of its kernel.")]
    timed_out: bool
    hint: Annotated[str | None, Field(description="What to do next; null when all is well.")]
    limit: Annotated[
        float | None, Field(description="The limit that belongs to the cause: bytes, milliseconds or processes.")
    ]
    peak: Annotated[float | None, Field(description="How much it used of that.")]
    stdout: Annotated[
        str, Field(description="Bytes that are no UTF-8 are U+FFFD here; with `encoding: base64` it is exact.")
    ]
    stderr: str
    encoding: EncodingName
    stdout_bytes: Annotated[int, Field(description="Written in all.")]
    stderr_bytes: int
    truncated: Annotated[bool, Field(description="Whether only head and tail of the output were kept.")]
    displays: list[DisplayShown]
    error: ErrorShown | None
    files_changed: list[FileChangeShown]
    files_changed_complete: bool
    duration_ms: int
    cpu_ms: float
    cells_back: Annotated[int, Field(description="Finished cells that were undone besides this one.")]
    protected: Annotated[bool, Field(description="Whether the kernel could be rolled back.")]
    why_unprotected: str | None
    notes: list[str]


@_CLOSED
class ExecutionShown(ExecutionHead, ResultShown):
    """An execution and, once it has finished, how it ended. Until then those fields are null or empty."""


@_CLOSED
class RecordedExecution(ExecutionShown):
    """An execution as it was recorded, with the code that ran. Long code and output are cut."""

    code: str
    request_id: str


@_CLOSED
class OutputFileShown(TypedDict):
    """A file that the run created or modified, with its content."""

    path: str
    action: Literal["created", "modified"]
    size_bytes: int
    base64: str


@_CLOSED
class RunShown(ExecutionShown):
    """How a run in a sandbox of its own ended, and the files that it left."""

    files: list[OutputFileShown]
    files_complete: Annotated[bool, Field(description="Whether every created or modified file is among them.")]


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
    at: str = Field(json_schema_extra=_TIME)
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
    started_at: str = Field(json_schema_extra=_TIME)
    finished_at: str | None = Field(json_schema_extra=_TIME)
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
    built_at: str | None = Field(json_schema_extra=_TIME)
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
