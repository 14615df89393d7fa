"""Request of the native API for a one-shot run."""

from __future__ import annotations

from pydantic import ConfigDict, Field

from warren.gateway.dialects.native.schemas import Base64, Body, ImageName, Path, Whole
from warren.gateway.dialects.native.schemas_egress import EGRESS_ABOUT, EgressField
from warren.gateway.dialects.native.schemas_executions import RunFields
from warren.gateway.dialects.native.schemas_sandboxes import GPUS_ABOUT, DiskMb, GpusField, MemoryMb, Pids


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
