"""Records of sandboxes, their executions and their tool callbacks, and the resources that they use."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from warren.domain.egress import Egress
from warren.domain.lifecycle import ACTIVE, Status
from warren.domain.values import Limits, Storage

if TYPE_CHECKING:
    from collections.abc import Mapping

    from warren.domain.records.principals import Owner
    from warren.domain.values import ExecKind, ExecResult


@dataclass(frozen=True, slots=True, kw_only=True)
class Sandbox:
    """One sandbox: its specification and its status. Times are seconds since the epoch."""

    id: str
    owner: Owner
    status: Status
    engine: str
    reach: str = ""
    """What its engine could connect to when it was made: `Engine.reach`. Empty for those of earlier versions."""
    image: str
    image_digest: str
    limits: Limits = field(default_factory=Limits)
    storage: Storage = Storage.PERSISTENT
    env: Mapping[str, str] = field(default_factory=dict)
    """May hold secrets: never shown, never logged."""
    egress: Egress = field(default_factory=Egress)
    """Its egress policy; temporary grants are kept apart."""
    gpus: tuple[str, ...] = ()
    """Full names of its GPUs."""
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
    """Why its status changed without a request: idle, lost, broke its protocol."""
    executions: int = 0

    @property
    def is_active(self) -> bool:
        """Whether it holds memory and processors."""
        return self.status in ACTIVE

    @property
    def expires_at(self) -> float | None:
        """When it is destroyed, used or not."""
        return None if self.max_lifetime_s is None else self.created_at + self.max_lifetime_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Execution:
    """One run of code or a command. It runs as long as it has no result."""

    id: str
    sandbox_id: str
    owner: Owner
    kind: ExecKind
    kernel: str | None
    code: str
    """The code or command, cut to the size that is kept."""
    background: bool = False
    request_id: str
    started_at: float
    finished_at: float | None = None
    result: ExecResult | None = None


class ResourceUse(NamedTuple):
    """Resources in use, or their quota: those that are held as long as a sandbox exists."""

    sandboxes: int = 0
    active: int = 0
    memory_bytes: int = 0
    """Promised to active sandboxes."""
    disk_bytes: int = 0
    """Promised to all of them."""
    gpus: int = 0
    """Held by active sandboxes; one that two sandboxes share counts twice."""

    def over(self, limits: ResourceUse) -> str | None:
        """Name the first resource that is over its limit, where 0 is no limit."""
        for name, have, most in zip(self._fields, self, limits, strict=True):
            if most and have > most:
                return name
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Callbacks:
    """Tools of its owner that the programs of a sandbox may call, by name, with their descriptions."""

    sandbox_id: str
    url: str = field(repr=False)
    """May hold secrets, as the token may: never shown, never logged, never in the sandbox."""
    token: str = field(repr=False)
    tools: Mapping[str, str]
    timeout_s: float
    port: int
    """Inside the sandbox, where programs reach them."""
    peer: str
    """The address of the client that registered them, if it may be called though it is not public; or ""."""
