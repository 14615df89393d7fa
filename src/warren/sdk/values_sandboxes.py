"""Answers about sandboxes, and what belongs to one: egress, kernels, terminals, links, packages."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime  # noqa: TC003 - a field's type, read where the page about the library is made
from typing import TYPE_CHECKING

from warren.sdk.values import TIME, TUPLE, Owner, build_all, build_one

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True, kw_only=True)
class EgressRule:
    """Something that a sandbox may reach."""

    host: str
    """A name, a glob of names, an address or a network."""
    ports: tuple[int, ...] = field(default=(80, 443), metadata=TUPLE)
    methods: tuple[str, ...] = field(default=(), metadata=TUPLE)
    """Of plain HTTP; empty is all, and TLS too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Egress:
    """What a sandbox may reach, besides what it was granted for a while."""

    mode: str = "none"
    """none, packages, rules or open."""
    rules: tuple[EgressRule, ...] = field(default=(), metadata=build_all(EgressRule))


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """Something that a sandbox may reach until its time is over."""

    id: str
    host: str
    ports: tuple[int, ...] = field(metadata=TUPLE)
    methods: tuple[str, ...] = field(metadata=TUPLE)
    created_at: datetime = field(metadata=TIME)
    expires_at: datetime = field(metadata=TIME)


@dataclass(frozen=True, slots=True, kw_only=True)
class Secret:
    """A secret that a sandbox may use and never has, without its value."""

    name: str
    """Also of the variable inside that holds the placeholder."""
    placeholder: str
    """What the sandbox has in its place: write it wherever the value would go."""
    hosts: tuple[str, ...] = field(metadata=TUPLE)
    created_at: datetime = field(metadata=TIME)


@dataclass(frozen=True, slots=True, kw_only=True)
class Package:
    """A package that is in a sandbox."""

    name: str
    version: str


@dataclass(frozen=True, slots=True, kw_only=True)
class InstalledPackages:
    """What came of an installation."""

    ok: bool
    """Whether everything is there."""
    packages: tuple[Package, ...] = field(metadata=build_all(Package))
    """What was asked for and is there, and whatever came with it."""
    output: str
    """What the installer said."""
    execution_id: str
    hint: str | None
    """What to do, where there is something to do."""
    duration_ms: float
    timed_out: bool
