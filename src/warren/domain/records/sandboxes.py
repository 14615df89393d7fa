"""Sandboxes as they are kept, what somebody holds of them, and what their programs may call."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from warren.domain.egress import Egress
from warren.domain.lifecycle import ACTIVE, Status
from warren.domain.values import Limits, Storage

if TYPE_CHECKING:
    from collections.abc import Mapping

    from warren.domain.records.principals import Owner


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
    gpus: tuple[str, ...] = ()
    """Full names of the GPUs that it has."""
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


class ResourceUse(NamedTuple):
    """What somebody holds, or may hold: the quotas that live as long as sandboxes do."""

    sandboxes: int = 0
    active: int = 0
    memory_bytes: int = 0
    """Promised to active sandboxes."""
    disk_bytes: int = 0
    """Promised to all of them."""
    gpus: int = 0
    """Held by active sandboxes; one that two sandboxes share counts twice."""

    def over(self, ceiling: ResourceUse) -> str | None:
        """Name the first part that is over a ceiling, where 0 is no ceiling."""
        for name, have, most in zip(self._fields, self, ceiling, strict=True):
            if most and have > most:
                return name
        return None


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
