"""The use cases of sandboxes: create, get, list, update, stop, start, delete, measure and use them."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from warren.core.places import Place
from warren.domain import Limits, Storage
from warren.records import Scope

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from warren.domain import Usage
    from warren.records import Caller, Page, Sandbox, SandboxQuery

__all__ = ["NewSandbox", "Place", "SandboxChanges", "Sandboxes"]


@dataclass(frozen=True, slots=True, kw_only=True)
class NewSandbox:
    """What a caller asks for. What is None is as the operator decided; a time of 0 is for ever."""

    image: str | None = None
    limits: Limits | None = None
    storage: Storage = Storage.PERSISTENT
    env: Mapping[str, str] = field(default_factory=dict)
    metadata: Mapping[str, str] = field(default_factory=dict)
    session_key: str | None = None
    """Of the sandboxes of one owner, at most one has it."""
    idle_timeout_s: float | None = None
    max_lifetime_s: float | None = None
    idempotency_key: str | None = None
    use_pool: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxChanges:
    """What a caller wants changed. What is None stays; a time of 0 is for ever."""

    metadata: Mapping[str, str] | None = None
    idle_timeout_s: float | None = None
    max_lifetime_s: float | None = None
    limits: Limits | None = None


class Sandboxes:
    """Every sandbox there is, for whoever may see it."""

    async def create(self, caller: Caller, new: NewSandbox) -> tuple[Sandbox, bool]:
        """Make a sandbox, or find the one of that session or idempotency key; True when it is new."""
        raise NotImplementedError

    async def get(self, caller: Caller, sandbox_id: str) -> Sandbox:
        """Return a sandbox. Raises NotFound, also for somebody else's."""
        raise NotImplementedError

    async def list(self, caller: Caller, query: SandboxQuery) -> Page[Sandbox]:
        """Return a page of the caller's sandboxes, or of everybody's for an admin who asks for no owner."""
        raise NotImplementedError

    async def update(self, caller: Caller, sandbox_id: str, changes: SandboxChanges) -> Sandbox:
        """Change what can be changed while it lives."""
        raise NotImplementedError

    async def stop(self, caller: Caller, sandbox_id: str) -> Sandbox:
        """End its processes and free its memory; the workspace stays."""
        raise NotImplementedError

    async def start(self, caller: Caller, sandbox_id: str) -> Sandbox:
        """Run a stopped sandbox again."""
        raise NotImplementedError

    async def delete(self, caller: Caller, sandbox_id: str) -> None:
        """Remove it, workspace and all."""
        raise NotImplementedError

    async def usage(self, caller: Caller, sandbox_id: str) -> Usage:
        """Measure a running sandbox from outside."""
        raise NotImplementedError

    @contextlib.asynccontextmanager
    async def use(self, caller: Caller, sandbox_id: str, scope: Scope = Scope.RUN) -> AsyncIterator[Place]:
        """Have a sandbox running and keep it so: resumes a stopped one, waits for one that is being made."""
        raise NotImplementedError
        yield
