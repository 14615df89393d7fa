"""What the native API takes, field by field. Unknown fields are refused; every number and string is bounded."""

from __future__ import annotations

import re
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, JsonValue, model_validator

from warren.core.egress_rules import MAX_PORTS, MAX_RULES, METHODS
from warren.domain import Echo, Storage
from warren.gateway.bodies import REPEATED
from warren.gateway.host_pattern import TARGET
from warren.gateway.patterns import matching
from warren.lifecycle import Status

YEAR_S = 366 * 86_400
MAX_OUTPUT_BYTES = 3 << 19
EXECUTION_ID = re.compile(r"exe_[a-z0-9]{8,40}")
KERNEL_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")

_NO_OTHERS: dict[str, JsonValue] = {"additionalProperties": False}
_BASE64 = r"^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$"


def _whole(value: object) -> object:
    """Take 3.0 for 3, as JSON does."""
    return int(value) if type(value) is float and value.is_integer() else value


def _check_labels(labels: dict[str, str]) -> dict[str, str]:
    # WHY: some dialects count everybody's sandboxes by it, and would let nobody make more.
    if "dialect" in labels:
        raise ValueError("the label dialect is Warren's own: choose another name")
    return labels


def _check_program(argv: list[str]) -> list[str]:
    if not argv[0]:
        raise ValueError("the first word must name a program")
    return argv


_NO_NUL = "hold no NUL"
Text = Annotated[str, matching(r"^[^\x00]*$", _NO_NUL)]
"""Text without NUL, which neither a command line nor Python source can hold."""
Base64 = Annotated[str, matching(_BASE64, "be base64, with its padding")]
Whole = Annotated[int, BeforeValidator(_whole)]
MemoryMb = Annotated[int, Field(ge=64, le=1 << 20), BeforeValidator(_whole)]
Pids = Annotated[int, Field(ge=16, le=32_768), BeforeValidator(_whole)]
DiskMb = Annotated[int, Field(ge=16, le=1 << 22), BeforeValidator(_whole)]
Port = Annotated[int, Field(ge=1, le=65_535), BeforeValidator(_whole)]
MaxBytes = Annotated[int, Field(ge=0, le=1 << 50), BeforeValidator(_whole)]
CheckpointMb = Annotated[int, Field(ge=0, le=65_536), BeforeValidator(_whole)]
Checkpoints = Annotated[int, Field(ge=0, le=8), BeforeValidator(_whole)]
EnvName = Annotated[
    str,
    matching(
        r"^[A-Za-z_][A-Za-z0-9_]{0,127}$", "have 1 to 128 letters, digits and underscores, and begin with no digit"
    ),
]
EnvValue = Annotated[str, matching(r"^[^\x00]*$", _NO_NUL, max_length=32_768)]
Env = Annotated[dict[EnvName, EnvValue], Field(max_length=256, json_schema_extra=dict(_NO_OTHERS))]
MetadataName = Annotated[str, matching(r"^[^\x00]{1,128}$", "have 1 to 128 characters, and no NUL")]
MetadataValue = Annotated[str, matching(r"^[^\x00]*$", _NO_NUL, max_length=1024)]
Metadata = Annotated[
    dict[MetadataName, MetadataValue],
    Field(max_length=64, json_schema_extra=dict(_NO_OTHERS)),
    AfterValidator(_check_labels),
]
SessionKey = Annotated[str, matching(r"^[^\x00]{1,256}$", "have 1 to 256 characters, and no NUL")]
ImageName = Annotated[
    str,
    matching(
        r"^[A-Za-z0-9][A-Za-z0-9._/:@-]{0,199}$", "be the name of an image: letters, digits and . _ / : @ -, no spaces"
    ),
]
KernelName = Annotated[
    str, matching(f"^{KERNEL_NAME.pattern}$", "have 1 to 64 letters, digits, dots, dashes and underscores")
]
Path = Annotated[str, matching(r"^[^\x00]{1,4096}$", "have 1 to 4096 characters, and no NUL")]
Target = Annotated[
    str,
    matching(
        TARGET,
        "be the name of a host (other letters as xn--…), a glob such as *.example.org, an address or a network",
        max_length=253,
    ),
]
Method = Literal["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]
Argv = Annotated[
    list[Text],
    Field(min_length=1, max_length=1024, json_schema_extra={"prefixItems": [{"type": "string", "minLength": 1}]}),
    AfterValidator(_check_program),
]
Seconds = Annotated[float, Field(ge=0, le=YEAR_S)]
SkillIds = Annotated[list[Annotated[str, Field(min_length=1, max_length=64)]], Field(max_length=100)]


class Body(BaseModel):
    """A JSON body: strict, so that the documentation says all that is taken."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class Query(BaseModel):
    """The query of an address: all values are text there, so they are converted."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class LimitFields(Body):
    """The limits of a sandbox that a caller may choose. What is absent is as the operator decided."""

    memory_mb: MemoryMb | None = Field(default=None, description="Memory, in MiB.")
    cpu: float | None = Field(default=None, ge=0.05, le=1024, description="Processors; parts of one are fine.")
    pids: Pids | None = Field(default=None, description="Processes and threads.")
    checkpoint_mb: CheckpointMb | None = Field(
        default=None,
        description="A kernel with more private memory than this is not checkpointed; 0 turns checkpoints off.",
    )
    checkpoints: Checkpoints | None = Field(default=None, description="Cells that a rollback can reach back.")


class EgressRuleBody(Body):
    """Something that a sandbox may reach."""

    host: Target = Field(
        description="A name, a glob of names, an address or a network. `*.example.org` is every name below it, and not "
        "`example.org`. What is not public has to be named exactly, or by its address or network."
    )
    ports: Annotated[list[Port], Field(min_length=1, max_length=MAX_PORTS)] = Field(
        default_factory=lambda: [80, 443], description="On these ports."
    )
    methods: Annotated[list[Method], Field(max_length=len(METHODS))] = Field(
        default_factory=list,
        description="With these methods, of plain HTTP only: a rule that has some allows no TLS. Empty is all.",
    )


class EgressBody(Body):
    """What a sandbox may reach."""

    # Nobody means both at once.
    model_config = ConfigDict(
        json_schema_extra={
            "anyOf": [
                {"properties": {"mode": {"enum": ["packages", "rules", "open"]}}},
                {"properties": {"rules": {"maxItems": 0}}},
            ]
        }
    )

    mode: Literal["none", "packages", "rules", "open"] = Field(
        default="rules",
        description="`none`: nothing. `packages`: the package indexes. `rules`: what a rule names. `open`: all that is "
        "public. Rules add to what `packages` and `open` allow.",
    )
    rules: Annotated[list[EgressRuleBody], Field(max_length=MAX_RULES)] = Field(
        default_factory=list, description="What may be reached besides."
    )

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.rules and self.mode == "none":
            raise ValueError("with rules the mode is rules, packages or open, and not none")
        return self


def _from_word(value: object) -> object:
    """Take a word for an object that has nothing else."""
    if not isinstance(value, str):
        return value
    if value not in {"none", "packages", "open"}:
        raise ValueError("write none, packages or open, or an object with rules")
    return {"mode": value}


EgressField = Annotated[
    EgressBody,
    BeforeValidator(_from_word, json_schema_input_type=Literal["none", "packages", "open"] | EgressBody),
]
"""A word, or a word and rules."""
_EGRESS = "What it may reach: `none`, `packages`, `open`, or an object with rules."


class CreateSandbox(LimitFields):
    """A sandbox to make. Everything is optional."""

    image: ImageName | None = Field(default=None, description="What it is made from; `GET /images` lists them.")
    disk_mb: DiskMb | None = Field(default=None, description="Size of the workspace, in MiB.")
    storage: Storage = Field(
        default=Storage.PERSISTENT,
        description="`persistent`: the workspace survives a stop. `ephemeral`: it is gone then.",
    )
    idle_timeout_seconds: Seconds | None = Field(
        default=None, description="Stopped after so long without use; 0 is never."
    )
    max_lifetime_seconds: Seconds | None = Field(
        default=None, description="Destroyed after so long, used or not; 0 is never."
    )
    session_key: SessionKey | None = Field(
        default=None, description="The same key always gives you the same sandbox, resumed if it was stopped."
    )
    env: Env = Field(default_factory=dict, description="Environment of everything that runs in it. Never shown again.")
    metadata: Metadata = Field(default_factory=dict, description="Your own labels; lists can be filtered by them.")
    skill_ids: SkillIds = Field(
        default_factory=list, description="Skills to have in `/workspace/skills`, by id; `GET /skills` lists them."
    )
    egress: EgressField | None = Field(default=None, description=f"{_EGRESS} The operator decides where it is absent.")
    network_enabled: bool | None = Field(
        default=None, description="A short word for `egress`, which wins: true is `open`, and false is `none`."
    )


class UpdateSandbox(LimitFields):
    """What to change. What is absent or null stays."""

    idle_timeout_seconds: Seconds | None = Field(
        default=None, description="Stopped after so long without use; 0 is never."
    )
    max_lifetime_seconds: Seconds | None = Field(
        default=None, description="Destroyed so long after it was made; 0 is never."
    )
    metadata: Metadata | None = Field(default=None, description="Replaces all labels.")
    egress: EgressField | None = Field(
        default=None, description=f"{_EGRESS} In force at once: connections that it does not allow are cut."
    )


class Paging(Query):
    """Which part of a list."""

    offset: int = Field(default=0, ge=0, le=1 << 31, description="How many to pass over.")
    limit: int = Field(default=50, ge=1, le=200, description="How many at most.")


class ListSandboxes(Paging):
    """Which sandboxes to list, newest first."""

    status: list[Status] = Field(
        default_factory=list, max_length=6, json_schema_extra=dict(REPEATED), description="Only these; may be repeated."
    )
    image: ImageName | None = Field(default=None, description="Only of this image.")
    session_key: SessionKey | None = Field(default=None, description="Only the one of this session key.")
    metadata: list[Annotated[str, matching(r"^[^\x00=]{1,128}=[^\x00]{0,1024}$", "be name=value")]] = Field(
        default_factory=list,
        max_length=16,
        json_schema_extra=dict(REPEATED),
        description="Only with this label, as `name=value`; may be repeated.",
    )
    everybody: bool = Field(default=False, description="Other people's too; for admins.")


class ListExecutions(Paging):
    """Which executions to list, newest first."""

    limit: int = Field(default=20, ge=1, le=100, description="How many at most.")


class Encoded(Query):
    """How bytes are written in JSON."""

    encoding: Literal["utf-8", "base64"] = Field(
        default="utf-8",
        description="How output is written: as text, in which bytes that are no UTF-8 become U+FFFD, or exactly.",
    )


class FollowEvents(Encoded):
    """From where to follow an execution."""

    after: int = Field(
        default=0, ge=0, le=1 << 53, description="Events after this number; the header `Last-Event-ID` wins."
    )


class WriteStdin(Query):
    """What to do once the bytes are written."""

    eof: bool = Field(default=False, description="Close standard input after these bytes.")


class RunFields(Body):
    """What to run, and how. Exactly one of `command`, `code` and `argv`."""

    model_config = ConfigDict(
        json_schema_extra={
            "oneOf": [{"required": ["command"]}, {"required": ["code"]}, {"required": ["argv"]}],
            "not": {"required": ["stdin", "stdin_base64"]},
        }
    )

    command: Text = Field(default="", min_length=1, description="A line for bash.")
    code: Text = Field(default="", description="Source in `language`.")
    argv: Argv = Field(default_factory=list, description="A program and its arguments, without a shell.")
    language: Literal["python", "bash"] = Field(default="python", description="Of `code`.")
    stdin: str = Field(default="", description="Standard input, as text.")
    stdin_base64: Base64 = Field(default="", description="Standard input, as base64.")
    env: Env = Field(default_factory=dict, description="Added to the environment of this run.")
    cwd: Path | None = Field(default=None, description="Folder to run in, relative to the workspace.")
    timeout_seconds: float | None = Field(
        default=None, ge=0.001, le=86_400, description="Interrupted after so long, then killed."
    )
    idle_timeout_seconds: float | None = Field(
        default=None, ge=0.001, le=86_400, description="The same, after so long without output."
    )
    grace_seconds: float = Field(default=1.0, ge=0, le=60, description="Between the interrupt and the kill.")
    echo: Echo = Field(
        default=Echo.DISPLAY,
        description="What becomes of the value of the last expression of Python in a kernel.",
    )
    output_bytes: Whole = Field(
        default=1 << 20, ge=0, le=MAX_OUTPUT_BYTES, description="Kept of stdout and of stderr: head and tail."
    )
    output_max_bytes: Whole = Field(
        default=256 << 20, ge=1, le=1 << 40, description="A program that writes more in all is ended."
    )
    kill_leftovers: bool = Field(default=False, description="End the processes that a command leaves behind.")
    encoding: Literal["utf-8", "base64"] = Field(
        default="utf-8",
        description="How output is written: as text, in which bytes that are no UTF-8 become U+FFFD, or exactly.",
    )


class Exec(RunFields):
    """Something to run in a sandbox."""

    kernel: KernelName = Field(default="main", description="Python runs in this kernel, which keeps its variables.")
    fresh: bool = Field(
        default=False, description="Run Python in a fresh process instead: no variables, and a true exit code."
    )
    background: bool = Field(default=False, description="Answer at once; it runs on without you.")
    stream: bool = Field(default=False, description="Answer with server-sent events, as `Accept` does.")
    stdin_open: bool = Field(default=False, description="Standard input stays open: write to `…/stdin`.")
    scan_changes: bool = Field(default=True, description="Look for changed files afterwards.")


class InputFile(Body):
    """A file to put into the workspace before the run. Exactly one of `text` and `base64`."""

    model_config = ConfigDict(json_schema_extra={"oneOf": [{"required": ["text"]}, {"required": ["base64"]}]})

    path: Path = Field(description="Relative to the workspace.")
    text: str = Field(default="", description="Its content, as text.")
    base64: Base64 = Field(default="", description="Its content, as base64.")


class Run(RunFields):
    """Something to run in a sandbox of its own, which is gone afterwards."""

    image: ImageName | None = Field(default=None, description="What the sandbox is made from.")
    memory_mb: MemoryMb | None = Field(default=None, description="Memory, in MiB.")
    cpu: float | None = Field(default=None, ge=0.05, le=1024, description="Processors; parts of one are fine.")
    pids: Pids | None = Field(default=None, description="Processes and threads.")
    disk_mb: DiskMb | None = Field(default=None, description="Size of the workspace, in MiB.")
    egress: EgressField | None = Field(default=None, description=f"{_EGRESS} The operator decides where it is absent.")
    files: list[InputFile] = Field(default_factory=list, max_length=1000, description="Put into the workspace first.")
    fresh: bool = Field(
        default=False,
        description="Run Python as a script, whose exit code is the system's word, and not as a cell, whose last "
        "value and figures are shown.",
    )
    max_files: Whole = Field(default=100, ge=0, le=1000, description="Changed files to return with their content.")
    max_bytes: Whole = Field(default=16 << 20, ge=0, le=16 << 20, description="Of all of them together.")


class CreateKernel(Body):
    """One more kernel."""

    name: KernelName = Field(description="Its name.")


class ForkKernel(Body):
    """A copy of a kernel with all its variables."""

    to: KernelName = Field(description="The name of the copy.")


class RollbackKernel(Body):
    """How far to go back."""

    cells: Whole = Field(default=1, ge=1, le=8, description="How many cells to undo.")


class ListAudit(Paging):
    """Which rows of the audit record to list, newest first."""

    limit: int = Field(default=100, ge=1, le=1000, description="How many at most.")
    tenant: SessionKey | None = Field(default=None, description="Only of this tenant.")
    subject: SessionKey | None = Field(default=None, description="Only of this subject.")
    action: SessionKey | None = Field(default=None, description="Only this action, such as `sandbox.create`.")
    sandbox_id: SessionKey | None = Field(default=None, description="Only about this sandbox.")
    execution_id: SessionKey | None = Field(default=None, description="Only about this execution.")
    request_id: SessionKey | None = Field(default=None, description="Only of this request.")
    since: float | None = Field(default=None, ge=0, le=1e12, description="Not before, in seconds since 1970.")
    until: float | None = Field(default=None, ge=0, le=1e12, description="Before, in seconds since 1970.")
