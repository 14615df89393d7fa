"""Requests of the native API about executions: run, list, follow, write to standard input."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, ConfigDict, Field

from warren.domain.values import Echo
from warren.gateway.dialects.native.schemas import (
    Base64,
    Body,
    Env,
    ImageName,
    KernelName,
    Paging,
    Path,
    Query,
    Text,
    Whole,
)
from warren.gateway.dialects.native.schemas_egress import EGRESS_ABOUT, EgressField
from warren.gateway.dialects.native.schemas_sandboxes import GPUS_ABOUT, DiskMb, GpusField, MemoryMb, Pids

_MAX_OUTPUT_BYTES = 3 << 19


def _check_program(argv: list[str]) -> list[str]:
    if not argv[0]:
        raise ValueError("the first word must name a program")
    return argv


Argv = Annotated[
    list[Text],
    Field(min_length=1, max_length=1024, json_schema_extra={"prefixItems": [{"type": "string", "minLength": 1}]}),
    AfterValidator(_check_program),
]
Encoding = Annotated[
    Literal["utf-8", "base64"],
    Field(description="How output is written: as text, in which bytes that are no UTF-8 become U+FFFD, or exactly."),
]


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
        default=1 << 20, ge=0, le=_MAX_OUTPUT_BYTES, description="Kept of stdout and of stderr: head and tail."
    )
    output_max_bytes: Whole = Field(
        default=256 << 20, ge=1, le=1 << 40, description="A program that writes more in all is ended."
    )
    kill_leftovers: bool = Field(default=False, description="End the processes that a command leaves behind.")
    encoding: Encoding = "utf-8"


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


class ListExecutions(Paging):
    """Which executions to list, newest first."""

    limit: int = Field(default=20, ge=1, le=100, description="How many at most.")


class Encoded(Query):
    """How bytes are written in JSON."""

    encoding: Encoding = "utf-8"


class FollowEvents(Encoded):
    """From where to follow an execution."""

    after: int = Field(
        default=0, ge=0, le=1 << 53, description="Events after this number; the header `Last-Event-ID` wins."
    )
    follow: bool = Field(
        default=True, description="False: only what has happened by now; the last event is `caught_up`, or `result`."
    )


class WriteStdin(Query):
    """What to do once the bytes are written."""

    eof: bool = Field(default=False, description="Close standard input after these bytes.")


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
    egress: EgressField | None = Field(
        default=None, description=f"{EGRESS_ABOUT} The operator decides where it is absent."
    )
    gpus: GpusField | None = Field(default=None, description=GPUS_ABOUT)
    files: list[InputFile] = Field(default_factory=list, max_length=1000, description="Put into the workspace first.")
    fresh: bool = Field(
        default=False,
        description="Run Python as a script, whose exit code is the system's word, and not as a cell, whose last "
        "value and figures are shown.",
    )
    max_files: Whole = Field(default=100, ge=0, le=1000, description="Changed files to return with their content.")
    max_bytes: Whole = Field(default=16 << 20, ge=0, le=16 << 20, description="Of all of them together.")
