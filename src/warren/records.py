"""What a store keeps, and who asks for it: frozen values over the nouns of `domain`. No I/O and no framework."""

from __future__ import annotations

import enum
import hashlib
import hmac
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

from warren.domain import ExecKind, ExecResult, Limits, Storage
from warren.egress import Egress
from warren.lifecycle import ACTIVE, Status

if TYPE_CHECKING:
    from collections.abc import Mapping

T = TypeVar("T")


class Scope(enum.StrEnum):
    """What a key allows. Each includes the ones before it."""

    READ = "read"
    """Look at one's own sandboxes, executions and files."""
    RUN = "run"
    """Create, change and delete them, and run code."""
    ADMIN = "admin"
    """See and end everybody's, and read all of the audit record."""


class Owner(NamedTuple):
    """Whose something is."""

    tenant: str
    subject: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Principal:
    """Who asks: a subject of a tenant, and what their credentials allow."""

    subject: str
    tenant: str = "default"
    scope: Scope = Scope.RUN
    key_id: str | None = None
    expires_at: float | None = None
    """When the credentials open nothing any more; None: not by themselves."""

    @property
    def owner(self) -> Owner:
        """Whose the things are that this principal makes."""
        return Owner(self.tenant, self.subject)

    def may(self, scope: Scope) -> bool:
        """Whether the credentials are good for this."""
        order = list(Scope)
        return order.index(self.scope) >= order.index(scope)


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """A principal in the act of asking: what the audit record says of where a request came from."""

    principal: Principal
    request_id: str
    address: str = ""
    link_id: str = ""
    """The shared link that the request came by, given by the principal; empty when it came with their credentials."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sandbox:
    """One sandbox: what was asked for, and where it is in its life. Times are seconds since the epoch."""

    id: str
    owner: Owner
    status: Status
    engine: str
    image: str
    image_digest: str
    limits: Limits = field(default_factory=Limits)
    storage: Storage = Storage.PERSISTENT
    env: Mapping[str, str] = field(default_factory=dict)
    """May hold secrets: never shown, never logged."""
    egress: Egress = field(default_factory=Egress)
    """What it may reach; what it was granted for a while is kept apart."""
    metadata: Mapping[str, str] = field(default_factory=dict)
    session_key: str | None = None
    idle_timeout_s: float | None = None
    max_lifetime_s: float | None = None
    created_at: float
    active_at: float
    """When it was last used, to about a second."""
    changed_at: float
    """When its status last changed."""
    reason: str | None = None
    """Why it is as it is, when nobody asked for it: idle, lost, broke its protocol."""
    executions: int = 0

    @property
    def is_active(self) -> bool:
        """Whether it holds memory and processors."""
        return self.status in ACTIVE

    @property
    def expires_at(self) -> float | None:
        """When it is destroyed, whatever it does."""
        return None if self.max_lifetime_s is None else self.created_at + self.max_lifetime_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Execution:
    """One run of code or a command. Without a result it is running."""

    id: str
    sandbox_id: str
    owner: Owner
    kind: ExecKind
    kernel: str | None
    code: str
    """What was run, cut to what is kept."""
    background: bool = False
    request_id: str
    started_at: float
    finished_at: float | None = None
    result: ExecResult | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredFile:
    """A file that the service keeps for somebody, apart from any sandbox, until its time is over."""

    id: str
    owner: Owner
    name: str
    """As its owner calls it; never a path of ours."""
    size: int
    sha256: str
    blob: str
    """The name of its content among the blobs."""
    created_at: float
    expires_at: float

    @property
    def weight(self) -> int:
        """What it counts for in a quota: an empty one is a row and a file too."""
        return self.size + STORED_FILE_BYTES


STORED_FILE_BYTES = 16 << 10


class RenderStatus(enum.StrEnum):
    """Where a render in the background is."""

    QUEUED = "queued"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Render:
    """A deck that is rendered in the background, and what became of it."""

    id: str
    owner: Owner
    status: RenderStatus
    version: str
    name: str
    created_at: float
    expires_at: float
    finished_at: float | None = None
    slides: int = 0
    degraded: tuple[tuple[int, str], ...] = ()
    """Slides that are pictures though they were meant to be editable, and why."""
    missing: tuple[tuple[str, int], ...] = ()
    """Addresses that the page asked for and that do not exist in a render, and how often."""
    script_errors: tuple[str, ...] = ()
    """What its scripts threw and nobody caught."""
    file_id: str | None = None
    """The stored file with its archive."""
    reason: str | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Skill:
    """A package of instructions and files that can be put into sandboxes, until its owner deletes it."""

    id: str
    owner: Owner
    name: str
    """Of the skills of one owner, at most one has it."""
    description: str
    source: str
    """`imported` came as a package, `manual` was written as a text."""
    is_shared: bool = False
    """Whether all of its tenant may see it and use it."""
    category: str | None = None
    tags: tuple[str, ...] = ()
    metadata: Mapping[str, object] = field(default_factory=dict)
    """JSON, the owner's own."""
    server_id: str | None = None
    folder: str = ""
    """Where in the package it is."""
    blob: str
    """The name of the package among the blobs of skills."""
    size: int
    sha256: str
    created_at: float
    changed_at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SkillQuery:
    """Which skills to list, by name: those of an owner and the shared ones of the tenant, or everybody's."""

    owner: Owner | None
    offset: int = 0
    limit: int = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class Callbacks:
    """What the programs of a sandbox may call outside of it: tools of its owner's, by name, with what each says."""

    sandbox_id: str
    url: str = field(repr=False)
    """May hold secrets, as the token does: never shown, never logged, never in the sandbox."""
    token: str = field(repr=False)
    tools: Mapping[str, str]
    timeout_s: float
    port: int
    """On which programs inside find them."""
    peer: str
    """The address of whoever registered them, where it is theirs and may be called though it is not public; or ""."""


class Holding(NamedTuple):
    """What somebody holds, or may hold: the quotas that live as long as sandboxes do."""

    sandboxes: int = 0
    active: int = 0
    memory_bytes: int = 0
    """Promised to active sandboxes."""
    disk_bytes: int = 0
    """Promised to all of them."""

    def plus(self, sandbox: Sandbox) -> Holding:
        """Return this and one sandbox more."""
        active = int(sandbox.is_active)
        return Holding(
            self.sandboxes + 1,
            self.active + active,
            self.memory_bytes + active * sandbox.limits.memory_bytes,
            self.disk_bytes + sandbox.limits.disk_bytes,
        )

    def over(self, ceiling: Holding) -> str | None:
        """Name the first part that is over a ceiling, where 0 is no ceiling."""
        for name, have, most in zip(self._fields, self, ceiling, strict=True):
            if most and have > most:
                return name
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiKey:
    """A key as we keep it: never the secret, only its hash."""

    id: str
    name: str
    hash: str
    """SHA-256 of the secret, in hex. The secret has 256 random bits, so nothing slower is needed."""
    tenant: str
    subject: str
    scope: Scope
    created_at: float
    expires_at: float | None = None
    revoked_at: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEntry:
    """Something that happened, before it has a place in the chain."""

    at: float
    action: str
    """A noun and a verb: `sandbox.create`, `execution.finish`, `file.write`, `auth.refuse`, `key.create`."""
    outcome: str
    """`ok`, or the code of the error."""
    tenant: str = ""
    subject: str = ""
    key_id: str = ""
    request_id: str = ""
    address: str = ""
    sandbox_id: str = ""
    execution_id: str = ""
    details: Mapping[str, object] = field(default_factory=dict)
    """JSON; bounded by whoever writes it."""


@dataclass(frozen=True, slots=True)
class AuditRow:
    """An entry in its place: `hash` is over the entry, its number and the hash before."""

    seq: int
    entry: AuditEntry
    previous: str
    hash: str


FIRST_HASH = "0" * 64
"""What the first row has before it."""


def canonical_entry(entry: AuditEntry) -> bytes:
    """Build the bytes that are hashed: the same for equal entries, in every version."""
    values = {name: getattr(entry, name) for name in AuditEntry.__slots__}
    # Added to 0.0, because a database knows only one zero.
    return json.dumps(
        {**values, "at": 0.0 + entry.at, "details": dict(entry.details)},
        sort_keys=True,
        separators=(",", ":"),
        ensure_ascii=True,
    ).encode()


def chain_hash(secret: bytes, seq: int, previous: str, entry: bytes) -> str:
    """Return the hash of a row. Keyed, so that whoever can write to the database alone cannot forge a chain."""
    return hmac.new(secret, b"%d:%s:" % (seq, previous.encode()) + entry, hashlib.sha256).hexdigest()


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """A part of a list, and how long the whole is."""

    items: tuple[T, ...]
    total: int
    offset: int
    limit: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxQuery:
    """Which sandboxes to list, newest first."""

    owner: Owner | None = None
    """None: everybody's."""
    statuses: frozenset[Status] = frozenset()
    """Empty: all."""
    image: str | None = None
    session_key: str | None = None
    metadata: Mapping[str, str] = field(default_factory=dict)
    offset: int = 0
    limit: int = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditQuery:
    """Which audit rows to list, newest first."""

    tenant: str | None = None
    subject: str | None = None
    action: str | None = None
    sandbox_id: str | None = None
    execution_id: str | None = None
    request_id: str | None = None
    since: float | None = None
    """Included; `until` is not."""
    until: float | None = None
    offset: int = 0
    limit: int = 100


@dataclass(frozen=True, slots=True)
class Taken:
    """What taking from a bucket gave."""

    allowed: bool
    remaining: int
    retry_after_s: float
    """When as much would be there again; 0 when allowed."""
