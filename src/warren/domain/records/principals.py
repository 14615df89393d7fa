"""Who asks, what their credentials allow, and the keys that say so."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import NamedTuple


class Scope(enum.StrEnum):
    """What a key allows. Each includes the ones before it."""

    READ = "read"
    """Look at one's own sandboxes, executions and files."""
    RUN = "run"
    """Create, change and delete them, and run code."""
    ADMIN = "admin"
    """See and end everybody's, and read all of the audit record."""


_ORDER = tuple(Scope)


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
        return _ORDER.index(self.scope) >= _ORDER.index(scope)


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """A principal in the act of asking: what the audit record says of where a request came from."""

    principal: Principal
    request_id: str
    address: str = ""
    link_id: str = ""
    """The shared link that the request came by, given by the principal; empty when it came with their credentials."""


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
