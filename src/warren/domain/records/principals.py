"""Principals, their scopes, and API keys."""

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
    """See and end those of all owners, and read the whole audit log."""


_ORDER = tuple(Scope)


class Owner(NamedTuple):
    """The owner of a sandbox, a file or a skill."""

    tenant: str
    subject: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Principal:
    """A subject of a tenant, and the scope of its credentials."""

    subject: str
    tenant: str = "default"
    scope: Scope = Scope.RUN
    key_id: str | None = None
    expires_at: float | None = None
    """When the credentials expire; None: never."""

    @property
    def owner(self) -> Owner:
        """The owner of what this principal makes."""
        return Owner(self.tenant, self.subject)

    def may(self, scope: Scope) -> bool:
        """Whether the credentials include this scope."""
        return _ORDER.index(self.scope) >= _ORDER.index(scope)


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """A principal with one request: what the audit log records of its origin."""

    principal: Principal
    request_id: str
    address: str = ""
    link_id: str = ""
    """The shared link of the request, made by the principal; empty when it came with the credentials themselves."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiKey:
    """An API key as it is stored: the hash, never the secret."""

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
    networks: tuple[str, ...] = ()
    """The addresses and networks of its clients; without any, it is valid everywhere."""
