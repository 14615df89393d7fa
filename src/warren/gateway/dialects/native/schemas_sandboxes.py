"""Native API, schemas: creating, changing and listing sandboxes."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from warren.domain.errors import InvalidRequest
from warren.domain.gpus import EXPECTED, ID, MAX_GPUS, GpuRequest
from warren.domain.lifecycle import Status
from warren.domain.values import Storage
from warren.gateway.api.bodies import REPEATED, matching
from warren.gateway.dialects.native.schemas import (
    NO_NUL,
    NO_OTHERS,
    Body,
    Env,
    ImageName,
    Paging,
    Query,
    SessionKey,
    SkillIds,
    as_whole,
)
from warren.gateway.dialects.native.schemas_egress import EGRESS_ABOUT, EgressField

_YEAR_S = 366 * 86_400


def _check_labels(labels: dict[str, str]) -> dict[str, str]:
    # WHY: some dialects count all sandboxes by this label, and would refuse new ones at their limit.
    if "dialect" in labels:
        raise ValueError("the label dialect is Warren's own: choose another name")
    return labels


MemoryMb = Annotated[int, Field(ge=64, le=1 << 20), BeforeValidator(as_whole)]
Pids = Annotated[int, Field(ge=16, le=32_768), BeforeValidator(as_whole)]
DiskMb = Annotated[int, Field(ge=16, le=1 << 22), BeforeValidator(as_whole)]
CheckpointMb = Annotated[int, Field(ge=0, le=65_536), BeforeValidator(as_whole)]
Checkpoints = Annotated[int, Field(ge=0, le=8), BeforeValidator(as_whole)]
Seconds = Annotated[float, Field(ge=0, le=_YEAR_S)]
GpuCount = Annotated[int, Field(ge=0, le=MAX_GPUS), BeforeValidator(as_whole)]
GpuName = Annotated[str, matching(f"^{ID}$", "be the name of a device, such as nvidia.com/gpu=0")]


def _check_gpus(value: object) -> object:
    """Say what may be asked for in one sentence, where the alternatives would each have one."""
    if isinstance(value, str) and value not in {"all", "auto", "none"}:
        # A name alone is for the command line.
        raise ValueError(f"{EXPECTED}, not {value[:80]!r}")
    try:
        if value is not None:
            GpuRequest.parse(as_whole(value))
    except InvalidRequest as exc:
        raise ValueError(str(exc)) from None
    return value


GpusField = Annotated[
    Literal["all", "auto", "none"] | GpuCount | Annotated[list[GpuName], Field(max_length=MAX_GPUS)],
    BeforeValidator(_check_gpus),
]
GPUS_ABOUT = (
    "GPUs: `all`, `auto` (all, or none where there are none), `none`, how many, or which, by the names that CDI gives "
    "them, numbers or UUIDs. The image decides where it is absent."
)
MetadataName = Annotated[str, matching(r"^[^\x00]{1,128}$", "have 1 to 128 characters, and no NUL")]
MetadataValue = Annotated[str, matching(r"^[^\x00]*$", NO_NUL, max_length=1024)]
Metadata = Annotated[
    dict[MetadataName, MetadataValue],
    Field(max_length=64, json_schema_extra=dict(NO_OTHERS)),
    AfterValidator(_check_labels),
]


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
    egress: EgressField | None = Field(
        default=None, description=f"{EGRESS_ABOUT} The operator decides where it is absent."
    )
    gpus: GpusField | None = Field(default=None, description=GPUS_ABOUT)
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
        default=None, description=f"{EGRESS_ABOUT} In force at once: connections that it does not allow are cut."
    )


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


class DeleteSandbox(Query):
    """How to delete a sandbox."""

    forget: bool = Field(
        default=False,
        description="Remove only the record, of a sandbox whose engine or data folder will not come back; for admins.",
    )
