"""Store protocol: what survives the service. Values in, values out; no policy."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, NamedTuple, Protocol

from warren.domain.errors import InvalidRequest, QuotaExceeded

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from warren.domain.egress import Brokered, Grant
    from warren.domain.lifecycle import Status
    from warren.domain.records import (
        ApiKey,
        AuditEntry,
        AuditQuery,
        AuditRow,
        Callbacks,
        Execution,
        Owner,
        Page,
        RateDecision,
        Render,
        ResourceUse,
        Sandbox,
        SandboxQuery,
        Skill,
        SkillQuery,
        StoredFile,
    )

STORES = {"sqlite": "warren.stores.sqlite:SqliteStore"}


class ResourceUseExceeded(QuotaExceeded):
    """A quota of sandboxes is used up."""

    def __init__(self, message: str, whose: Owner | str | None) -> None:
        super().__init__(message)
        self.whose = whose
        """The owner or tenant of the quota; None for that of all."""


class Ceilings(NamedTuple):
    """Quotas of the owner of a sandbox, of its tenant, and of all users together; None is no quota."""

    own: ResourceUse | None = None
    tenant: ResourceUse | None = None
    everybody: ResourceUse | None = None


NO_CEILINGS = Ceilings()


class Store(Protocol):
    """Keeps sandboxes, executions, keys and the audit chain.

    Every method may raise StoreError, and has then done nothing. Once a method has returned, its effect survives `kill
    -9` of this process.
    """

    @property
    def identity(self) -> str:
        """A random id that was made with the store and never changes; a copy has the same. Known once it is open."""

    async def open(self) -> None:
        """Open the store: create or migrate the schema. Raises StoreError: one sentence that names the remedy."""

    async def close(self) -> None:
        """Finish pending writes and close. Safe to call twice."""

    async def ping(self) -> None:
        """Check that the store can be written to."""

    async def add(self, sandbox: Sandbox, ceilings: Ceilings = NO_CEILINGS) -> None:
        """Add a sandbox.

        Raises Conflict when its id exists or its owner has one of that session key, and ResourceUseExceeded when its
        owner, its tenant or all together would exceed their quota. Checked and done in one step.
        """

    async def get(self, sandbox_id: str) -> Sandbox | None:
        """Return a sandbox."""

    async def find(self, owner: Owner, session_key: str) -> Sandbox | None:
        """Return the sandbox of that session key."""

    async def swap(self, sandbox: Sandbox, ceilings: Ceilings = NO_CEILINGS, *, was: Status) -> bool:
        """Replace a sandbox if its status still is `was`; return whether it was. Raises as `add`.

        `active_at` never goes back, and `executions` is kept as it is: `record` counts them.
        """

    async def touch(self, sandbox_id: str, active_at: float) -> None:
        """Note the use of a sandbox. No effect on a missing one."""

    async def remove(self, sandbox_id: str) -> None:
        """Remove a sandbox and its executions. A missing one counts as removed."""

    async def list(self, query: SandboxQuery) -> Page[Sandbox]:
        """Return a page of sandboxes, newest first."""

    async def holding(self, owner: Owner | None = None, *, tenant: str | None = None) -> ResourceUse:
        """Sum the resources of an owner, of a tenant, or of all."""

    async def record(self, execution: Execution) -> None:
        """Add an execution, or its result. The first result stays.

        A new execution counts for its sandbox and notes its use. No effect where the sandbox is missing. A store may
        keep only the newest of a sandbox, and only so many bytes of an owner's, but never drops a running one.
        """

    async def execution(self, execution_id: str) -> Execution | None:
        """Return an execution."""

    async def executions(self, sandbox_id: str, *, offset: int = 0, limit: int = 50) -> Page[Execution]:
        """Return a page of a sandbox's executions, newest first."""

    async def running(self, sandbox_id: str | None = None) -> tuple[Execution, ...]:
        """Return the executions without a result, of one sandbox or of all."""

    async def recorded(self, owner: Owner | None) -> int:
        """Return the approximate size on disk of the ended executions of an owner, or of all."""

    async def append(self, *entries: AuditEntry) -> None:
        """Append to the audit chain, in this order and without entries in between."""

    async def audit(self, query: AuditQuery) -> Page[AuditRow]:
        """Return a page of the audit record, newest first."""

    def chain(self, after: int = 0) -> AsyncIterator[AuditRow]:
        """Yield the rows after a number, oldest first."""

    async def verify(self) -> tuple[int, str]:
        """Verify the whole chain; return its last number and hash. Raises Conflict, which names the first bad row."""

    async def audit_start(self) -> tuple[int, str]:
        """Return number and hash of the last row cut off, or 0 and FIRST_HASH. Raises Conflict if tampered with."""

    async def prune_audit(self, before: float) -> tuple[int, int, str] | None:
        """Cut off some of the oldest audit rows that are from before a time, but never the last row.

        Returns the first and last number cut off, and the hash of the last; None when there was nothing to cut. The
        chain then begins after them, and `verify` proves that the store itself cut there.
        """

    async def keep_callbacks(self, callbacks: Callbacks) -> None:
        """Set the callbacks of a sandbox, to be removed with it. No effect where the sandbox is missing."""

    async def callbacks(self) -> tuple[Callbacks, ...]:
        """Return the tool callbacks of all sandboxes."""

    async def keep_grant(self, grant: Grant) -> None:
        """Set a grant of a sandbox by its id, to be removed with it. No effect where the sandbox is missing."""

    async def remove_grant(self, grant_id: str) -> bool:
        """Remove a grant; return whether there was one."""

    async def grants(self) -> tuple[Grant, ...]:
        """Return the grants of all sandboxes, oldest first, expired ones included."""

    async def keep_secret(self, secret: Brokered) -> None:
        """Set a secret of a sandbox by its name, to be removed with it. No effect where the sandbox is missing."""

    async def remove_secret(self, sandbox_id: str, name: str) -> bool:
        """Remove a secret of a sandbox; return whether there was one."""

    async def secrets(self) -> tuple[Brokered, ...]:
        """Return the secrets of all sandboxes, oldest first."""

    async def add_key(self, key: ApiKey) -> None:
        """Add a key. Raises Conflict when a key of that name is in force."""

    async def key(self, hash: str) -> ApiKey | None:  # noqa: A002 - the field's name
        """Return the key with that hash, in force or not."""

    async def keys(self) -> tuple[ApiKey, ...]:
        """Return all keys, oldest first."""

    async def revoke_key(self, key_id: str, at: float) -> bool:
        """Revoke a key; return whether one of that id was in force."""

    async def remember(self, owner: Owner, key: str, fingerprint: str, target: str, *, ttl_s: float) -> str:
        """Bind an idempotency key to an id; return the first that it was bound to. Raises Conflict for another use."""

    async def forget(self, owner: Owner, key: str, target: str) -> None:
        """Unbind an idempotency key from an id that was not created. No effect where it is bound to another by now."""

    async def add_file(self, file: StoredFile, *, own_bytes: int = 0, all_bytes: int = 0) -> None:
        """Add a stored file, whose content is on disk already.

        Raises Conflict when its id exists, and QuotaExceeded when the files of its owner, or of all, would exceed the
        limit; 0 is no limit. Checked and done in one step.
        """

    async def file(self, file_id: str) -> StoredFile | None:
        """Return a stored file, expired or not."""

    async def files(self, owner: Owner | None) -> tuple[StoredFile, ...]:
        """Return the stored files of an owner, or of all, oldest first, expired ones included."""

    async def remove_file(self, file_id: str) -> bool:
        """Remove a stored file; return whether there was one."""

    async def remove_files(self, *, expired_at: float, limit: int) -> tuple[StoredFile, ...]:
        """Remove up to `limit` stored files that are expired then, and return them."""

    async def file_bytes(self, owner: Owner | None) -> int:
        """Return the bytes of the stored files of an owner, or of all."""

    async def add_skill(self, skill: Skill, *, most: int = 0, most_bytes: int = 0) -> None:
        """Add a skill, whose package is on disk already.

        Raises Conflict when its id exists or its owner has one of that name, and QuotaExceeded when its owner has that
        many, or would exceed the bytes; 0 is no limit. Checked and done in one step.
        """

    async def skill(self, skill_id: str) -> Skill | None:
        """Return a skill."""

    async def find_skill(self, owner: Owner, name: str) -> Skill | None:
        """Return the skill of an owner that has that name."""

    async def skills(self, query: SkillQuery) -> Page[Skill]:
        """Return a page of skills, by name."""

    async def swap_skill(self, skill: Skill, *, was: Skill, most_bytes: int = 0) -> bool:
        """Replace a skill if its package and time of change still are as in `was`; return whether they were.

        Raises Conflict and QuotaExceeded as `add_skill`. Id, owner and time of creation stay. A skill that does not
        grow is never refused for its size.
        """

    async def remove_skill(self, skill_id: str) -> bool:
        """Remove a skill; return whether there was one."""

    async def skill_blobs(self) -> frozenset[str]:
        """Return the names of all packages."""

    async def add_render(self, render: Render) -> None:
        """Add a render. Raises Conflict when its id exists."""

    async def keep_render(self, render: Render) -> bool:
        """Replace a render; return whether it existed. No effect on a missing one."""

    async def render(self, render_id: str) -> Render | None:
        """Return a render, expired or not."""

    async def renders(self, owner: Owner) -> tuple[Render, ...]:
        """Return the renders of an owner, newest first, expired ones included."""

    async def unfinished_renders(self) -> tuple[Render, ...]:
        """Return all unfinished renders, oldest first."""

    async def remove_render(self, render_id: str) -> bool:
        """Remove a render; return whether there was one."""

    async def remove_renders(self, *, expired_at: float) -> int:
        """Remove the finished renders that are expired then; return their number."""

    async def take(self, bucket: str, *, capacity: int, per_s: float, amount: int = 1) -> RateDecision:
        """Take tokens from a bucket that holds `capacity` and refills at `per_s`. Not kept over a restart."""


def load_store(name: str) -> type[Store]:
    """Import the store class of that name, and no other store."""
    target = STORES.get(name)
    if target is None:
        raise InvalidRequest(f"unknown store {name!r}: choose one of {', '.join(sorted(STORES))}")
    module, _, attribute = target.partition(":")
    store: type[Store] = getattr(importlib.import_module(module), attribute)
    return store
