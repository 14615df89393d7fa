"""What a service answers, as frozen values. Fields that a newer service adds are passed over."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from datetime import datetime
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from warren.sdk.failures import explain_unread

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

T = TypeVar("T")

TIME = {"parse": datetime.fromisoformat}
TUPLE = {"parse": tuple}


def build(cls: type[T], raw: Any) -> T:
    """Build a value from JSON. Raises NotUnderstood."""
    try:
        values = {}
        for each in fields(cls):  # type: ignore[arg-type]  # every T here is a dataclass
            if each.name in raw:
                parse, value = each.metadata.get("parse"), raw[each.name]
                values[each.name] = value if parse is None or value is None else parse(value)
        return cls(**values)
    except (TypeError, ValueError, KeyError) as error:
        raise explain_unread(cls.__name__) from error


def build_all(cls: type[T]) -> Mapping[str, Callable[[Any], tuple[T, ...]]]:
    """Describe a field that is a list of values."""
    return {"parse": lambda raw: tuple(build(cls, each) for each in raw)}


def build_one(cls: type[T]) -> Mapping[str, Callable[[Any], T]]:
    """Describe a field that is another value."""
    return {"parse": lambda raw: build(cls, raw)}


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """A part of a list, and how long the whole is."""

    items: tuple[T, ...]
    total: int
    offset: int
    limit: int

    def __iter__(self) -> Iterator[T]:
        return iter(self.items)

    def __len__(self) -> int:
        return len(self.items)


def build_page(raw: Any, parse: Callable[[Any], T]) -> Page[T]:
    """Build a part of a list. Raises NotUnderstood."""
    try:
        return Page(tuple(parse(each) for each in raw["items"]), raw["total"], raw["offset"], raw["limit"])
    except (TypeError, KeyError) as error:
        raise explain_unread("a list") from error


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """Whose a sandbox is."""

    tenant: str
    subject: str


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
    """A secret that a sandbox may use and never has; nobody is shown its value."""

    name: str
    """Also of the variable inside that holds the placeholder."""
    placeholder: str
    """What the sandbox has in its place: write it wherever the value would go."""
    hosts: tuple[str, ...] = field(metadata=TUPLE)
    created_at: datetime = field(metadata=TIME)


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
    idle_timeout_seconds: float | None
    max_lifetime_seconds: float | None
    session_key: str | None
    metadata: Mapping[str, str]
    created_at: datetime = field(metadata=TIME)
    last_activity_at: datetime = field(metadata=TIME)
    changed_at: datetime = field(metadata=TIME)
    expires_at: datetime | None = field(metadata=TIME)
    reason: str | None
    """Why it is as it is, when nobody asked for it."""
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
class Build:
    """How far the last build of an image is, or how it ended."""

    phase: str
    """waiting, system, resolving, downloading, installing, node, fonts, compiling, finishing or done."""
    detail: str
    done: int
    total: int
    """0 when it is not known how much there is to do."""
    started_at: datetime = field(metadata=TIME)
    finished_at: datetime | None = field(metadata=TIME)
    error: str | None
    """Why it failed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """An image that sandboxes are made from."""

    name: str
    description: str
    aliases: tuple[str, ...] = field(metadata=TUPLE)
    packages: tuple[str, ...] = field(metadata=TUPLE)
    digest: str
    state: str
    """built, building, not_built, or stale: only an earlier build is there."""
    is_default: bool
    size_bytes: int
    built_at: datetime | None = field(metadata=TIME)
    preload: tuple[str, ...] = field(metadata=TUPLE)
    stale: tuple[str, ...] = field(metadata=TUPLE)
    """Digests of earlier builds that are still there."""
    build: Build | None = field(metadata=build_one(Build))


@dataclass(frozen=True, slots=True, kw_only=True)
class SkillInfo:
    """A skill, as it is listed."""

    id: str
    name: str
    description: str
    source_type: str
    """imported or manual."""
    skill_metadata: Mapping[str, Any]
    package_size_bytes: int
    portal_visible: bool
    """Whether all of the tenant may see and install it."""
    portal_category: str | None
    portal_tags: tuple[str, ...] = field(metadata=TUPLE)
    owner: Owner = field(metadata=build_one(Owner))
    created_at: datetime = field(metadata=TIME)
    updated_at: datetime = field(metadata=TIME)
    skill_md_content: str | None = None
    """What it says; None in a list."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InstalledSkills:
    """The skills that are in a sandbox now, by name."""

    installed: tuple[str, ...] = field(metadata=TUPLE)
    already_installed: tuple[str, ...] = field(metadata=TUPLE)


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
class AuditRow:
    """A row of the audit record."""

    seq: int
    at: datetime = field(metadata=TIME)
    action: str
    outcome: str
    tenant: str
    subject: str
    key_id: str
    request_id: str
    address: str
    sandbox_id: str
    execution_id: str
    details: Mapping[str, Any]
    previous: str
    hash: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A file, folder or link of a workspace."""

    name: str
    type: str
    """file, directory, link or other."""
    size: int
    path: str
    modified_at: datetime = field(metadata=TIME)
    mode: str
    """Permissions, in octal."""
    target: str | None
    encoded_path: str
    """The path as it stands in an address, exact also where a name is no UTF-8."""


@dataclass(frozen=True, slots=True)
class Listing:
    """The entries of a folder."""

    entries: tuple[Entry, ...]
    is_complete: bool
    """False when there are more than were listed."""

    def __iter__(self) -> Iterator[Entry]:
        return iter(self.entries)

    def __len__(self) -> int:
        return len(self.entries)


@dataclass(frozen=True, slots=True, kw_only=True)
class FileInfo:
    """What is known of one file."""

    path: str
    size: int
    content_type: str
    etag: str
    """Names this state of the file: give it as `if_match=` to write only if nobody else did."""
    modified_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Match:
    """A file that a search found, or a line of one."""

    path: str
    line: int | None
    text: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What a search found."""

    items: tuple[Match, ...] = field(metadata=build_all(Match))
    complete: bool

    def __iter__(self) -> Iterator[Match]:
        return iter(self.items)

    def __len__(self) -> int:
        return len(self.items)


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """An address that whoever has it may use until it expires: treat it as a key."""

    id: str
    """Names it in the audit record; it opens nothing."""
    url: str = field(repr=False)
    """The whole address; from a client on a socket of this machine only its path."""
    kind: str
    """port, file or terminal."""
    sandbox_id: str
    expires_at: datetime = field(metadata=TIME)


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """How a service is."""

    status: str
    """healthy or degraded."""
    version: str
    reasons: tuple[str, ...] = field(metadata=TUPLE)

    @property
    def is_healthy(self) -> bool:
        """Whether it can do its work."""
        return self.status == "healthy"
