"""Answers about sandboxes, kernels, terminals and links, as frozen values."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime  # noqa: TC003 - a field's type, read where the page about the library is made
from typing import TYPE_CHECKING

from warren.sdk.values import TIME, TUPLE, Owner, build_one
from warren.sdk.values_egress import Egress

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxInfo:
    """What is known of a sandbox."""

    id: str
    status: str
    """creating, running, stopping, stopped, starting or destroying."""
    image: str
    image_digest: str
    engine: str
    owner: Owner = field(metadata=build_one(Owner))
    workspace_path: str
    storage: str
    memory_mb: int
    cpu: float
    pids: int
    disk_mb: int
    checkpoint_mb: int
    checkpoints: int
    egress: Egress = field(default=Egress(), metadata=build_one(Egress))
    network_enabled: bool
    """Whether its egress allows anything."""
    gpus: tuple[str, ...] = field(default=(), metadata=TUPLE)
    """The GPUs it has, by the names that CDI gives them."""
    idle_timeout_seconds: float | None
    max_lifetime_seconds: float | None
    session_key: str | None
    metadata: Mapping[str, str]
    created_at: datetime = field(metadata=TIME)
    last_activity_at: datetime = field(metadata=TIME)
    changed_at: datetime = field(metadata=TIME)
    expires_at: datetime | None = field(metadata=TIME)
    reason: str | None
    """Why it has its status, when no request caused it."""
    command_count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """What a sandbox uses now. None where the service's host cannot count it."""

    memory_bytes: int | None
    memory_peak_bytes: int | None
    cpu_us: int | None
    pids: int | None
    disk_bytes: int | None
    disk_inodes: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernel:
    """A live interpreter in a sandbox."""

    name: str
    state: str
    """idle or busy."""
    executed: int
    checkpoints: int
    protected: bool
    private_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TerminalInfo:
    """A program on a terminal."""

    name: str
    program: str
    cols: int
    rows: int
    attached: int
    """How many clients are attached to it now."""
    age_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedLink:
    """An address that needs no key until it expires: treat it as a key."""

    id: str
    """Names it in the audit record; it opens nothing."""
    url: str = field(repr=False)
    """The whole address; from a client on a socket of this machine only its path."""
    kind: str
    """port, file or terminal."""
    sandbox_id: str
    expires_at: datetime = field(metadata=TIME)
