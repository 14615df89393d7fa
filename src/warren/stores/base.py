"""The store seam: what survives the service. Values in, values out; no policy."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Protocol

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
    """What may be held in sandboxes is used up."""

    def __init__(self, message: str, whose: Owner | str | None) -> None:
        super().__init__(message)
        self.whose = whose
        """The owner or the tenant of whose quota it is; None for that of everybody."""


class Store(Protocol):
    """Keeps sandboxes, executions, keys and the audit chain.

    Every method may raise StoreError, and has then done nothing. What a method has returned from survives `kill -9` of
    this process.
    """

    async def open(self) -> None:
        """Get ready: make or migrate the schema. Raises StoreError: one sentence that says what to do."""

    async def close(self) -> None:
        """Finish what was asked for and let go. Safe to call twice."""

    async def ping(self) -> None:
        """Make sure that it can be written to."""

    async def add(
        self,
        sandbox: Sandbox,
        *,
        own: ResourceUse | None = None,
        tenant: ResourceUse | None = None,
        everybody: ResourceUse | None = None,
    ) -> None:
        """Keep a new sandbox.

        Raises Conflict when its id is known or its owner has one of that session key already, and HoldingExceeded when
        its owner, all owners of its tenant, or all there are, would then hold more than that. Checked and done in one
        step.
        """

    async def get(self, sandbox_id: str) -> Sandbox | None:
        """Return a sandbox."""

    async def find(self, owner: Owner, session_key: str) -> Sandbox | None:
        """Return the sandbox of that session key."""

    async def swap(
        self,
        sandbox: Sandbox,
        *,
        was: Status,
        own: ResourceUse | None = None,
        tenant: ResourceUse | None = None,
        everybody: ResourceUse | None = None,
    ) -> bool:
        """Replace a sandbox if its status still is `was`; say whether it was. Raises as `add`.

        `active_at` never goes back, and `executions` is kept as it is: `record` counts them.
        """

    async def touch(self, sandbox_id: str, active_at: float) -> None:
        """Note that a sandbox was used. Nothing happens where it is gone."""

    async def remove(self, sandbox_id: str) -> None:
        """Forget a sandbox and its executions. What is not there counts as removed."""

    async def list(self, query: SandboxQuery) -> Page[Sandbox]:
        """Return a page of sandboxes, newest first."""

    async def holding(self, owner: Owner | None = None, *, tenant: str | None = None) -> ResourceUse:
        """Add up what an owner, or all of a tenant, or everybody, holds."""

    async def record(self, execution: Execution) -> None:
        """Keep an execution: a new one, or its result. The result that came first stays.

        A new one counts for its sandbox and notes that it was used. Nothing happens where the sandbox is gone. A store
        may keep only the newest of a sandbox, and only so many bytes of an owner's, but never forgets one that runs.
        """

    async def execution(self, execution_id: str) -> Execution | None:
        """Return an execution."""

    async def executions(self, sandbox_id: str, *, offset: int = 0, limit: int = 50) -> Page[Execution]:
        """Return a page of a sandbox's executions, newest first."""

    async def running(self, sandbox_id: str | None = None) -> tuple[Execution, ...]:
        """Return the executions that have no result, of one sandbox or of all."""

    async def recorded(self, owner: Owner | None) -> int:
        """Return how many bytes the ended executions of an owner take, or everybody's: about what they take on disk."""

    async def append(self, *entries: AuditEntry) -> None:
        """Add to the audit chain, in this order and with nothing between them."""

    async def audit(self, query: AuditQuery) -> Page[AuditRow]:
        """Return a page of the audit record, newest first."""

    def chain(self, after: int = 0) -> AsyncIterator[AuditRow]:
        """Yield the rows after a number, oldest first."""

    async def verify(self) -> tuple[int, str]:
        """Check the whole chain and return its last number and hash.

        Raises Conflict, which names the first row that was edited, moved or is missing.
        """

    async def audit_start(self) -> tuple[int, str]:
        """Return the number and hash of the last audit row that was cut off; 0 and FIRST_HASH when none was.

        Raises Conflict when that is not as this store left it.
        """

    async def prune_audit(self, before: float) -> tuple[int, int, str] | None:
        """Cut off some of the oldest audit rows, as long as they are from before a time, but never the last row.

        Returns the first and the last number cut off, and the hash of that last; None when nothing was left to cut. The
        chain then begins after them, and `verify` proves that nobody else cut there.
        """

    async def keep_callbacks(self, callbacks: Callbacks) -> None:
        """Keep what a sandbox's programs may call, in the place of what was kept. It goes with the sandbox.

        Nothing happens where the sandbox is gone.
        """

    async def callbacks(self) -> tuple[Callbacks, ...]:
        """Return what is kept of that, of all sandboxes."""

    async def keep_grant(self, grant: Grant) -> None:
        """Keep what a sandbox may reach for a while, in the place of what was kept under its id.

        It goes with the sandbox, and nothing happens where that is gone.
        """

    async def remove_grant(self, grant_id: str) -> bool:
        """Forget a grant; say whether there was one."""

    async def grants(self) -> tuple[Grant, ...]:
        """Return the grants of all sandboxes, oldest first; also those whose time is over."""

    async def keep_secret(self, secret: Brokered) -> None:
        """Keep a secret for a sandbox, in the place of its secret of that name.

        It goes with the sandbox, and nothing happens where that is gone.
        """

    async def remove_secret(self, sandbox_id: str, name: str) -> bool:
        """Forget a secret of a sandbox; say whether there was one."""

    async def secrets(self) -> tuple[Brokered, ...]:
        """Return the secrets of all sandboxes, oldest first."""

    async def add_key(self, key: ApiKey) -> None:
        """Keep a key. Raises Conflict when a key of that name is in force."""

    async def key(self, hash: str) -> ApiKey | None:  # noqa: A002 - the field's name
        """Return the key with that hash, also an expired or revoked one."""

    async def keys(self) -> tuple[ApiKey, ...]:
        """Return all keys, oldest first."""

    async def revoke_key(self, key_id: str, at: float) -> bool:
        """Revoke a key; say whether one of that id was in force."""

    async def remember(self, owner: Owner, key: str, fingerprint: str, target: str, *, ttl_s: float) -> str:
        """Tie an idempotency key to what it will make, and return what it was tied to first.

        Raises Conflict when it came with another fingerprint.
        """

    async def forget(self, owner: Owner, key: str, target: str) -> None:
        """Untie an idempotency key from what it should have made, and was not made.

        Nothing happens where it is tied to something else by now.
        """

    async def add_file(self, file: StoredFile, *, own_bytes: int = 0, all_bytes: int = 0) -> None:
        """Keep a stored file, whose content is on disk already.

        Raises Conflict when its id is known, and QuotaExceeded when its owner's, or everybody's, would then weigh more
        than that; 0 is no limit. Checked and done in one step.
        """

    async def file(self, file_id: str) -> StoredFile | None:
        """Return a stored file, also one whose time is over."""

    async def files(self, owner: Owner | None) -> tuple[StoredFile, ...]:
        """Return the stored files of an owner, or everybody's, oldest first; also those whose time is over."""

    async def remove_file(self, file_id: str) -> bool:
        """Forget a stored file; say whether there was one."""

    async def remove_files(self, *, expired_at: float, limit: int) -> tuple[StoredFile, ...]:
        """Forget at most so many of the stored files whose time is over then, and return them."""

    async def file_bytes(self, owner: Owner | None) -> int:
        """Return what the stored files of an owner weigh, or everybody's."""

    async def add_skill(self, skill: Skill, *, most: int = 0, most_bytes: int = 0) -> None:
        """Keep a skill, whose package is on disk already.

        Raises Conflict when its id is known or its owner has one of that name, and QuotaExceeded when its owner has so
        many already, or would have more bytes of them; 0 is no limit. Checked and done in one step.
        """

    async def skill(self, skill_id: str) -> Skill | None:
        """Return a skill."""

    async def find_skill(self, owner: Owner, name: str) -> Skill | None:
        """Return the skill of an owner that has that name."""

    async def skills(self, query: SkillQuery) -> Page[Skill]:
        """Return a page of skills, by name."""

    async def swap_skill(self, skill: Skill, *, was: Skill, most_bytes: int = 0) -> bool:
        """Replace a skill if its package and when it was changed still are as in `was`; say whether they were.

        Raises Conflict and QuotaExceeded as `add_skill`. Its id, its owner and when it was made stay; so does one that
        becomes no larger, however much there is.
        """

    async def remove_skill(self, skill_id: str) -> bool:
        """Forget a skill; say whether there was one."""

    async def skill_blobs(self) -> frozenset[str]:
        """Return the name of every package."""

    async def add_render(self, render: Render) -> None:
        """Keep a render that begins. Raises Conflict when its id is known."""

    async def keep_render(self, render: Render) -> bool:
        """Replace a render; say whether it was still there, and do nothing where it is not."""

    async def render(self, render_id: str) -> Render | None:
        """Return a render, also one whose time is over."""

    async def renders(self, owner: Owner) -> tuple[Render, ...]:
        """Return the renders of an owner, newest first; also those whose time is over."""

    async def unfinished_renders(self) -> tuple[Render, ...]:
        """Return everybody's renders that have no end yet, oldest first."""

    async def remove_render(self, render_id: str) -> bool:
        """Forget a render; say whether there was one."""

    async def remove_renders(self, *, expired_at: float) -> int:
        """Forget the renders that are done and whose time is over then; say how many those were."""

    async def take(self, bucket: str, *, capacity: int, per_s: float, amount: int = 1) -> RateDecision:
        """Take from a bucket that holds `capacity` and fills at `per_s`. Not kept over a restart."""


def load_store(name: str) -> type[Store]:
    """Import the store class of that name; nothing else of any store is imported."""
    target = STORES.get(name)
    if target is None:
        raise InvalidRequest(f"unknown store {name!r}: choose one of {', '.join(sorted(STORES))}")
    module, _, attribute = target.partition(":")
    store: type[Store] = getattr(importlib.import_module(module), attribute)
    return store
