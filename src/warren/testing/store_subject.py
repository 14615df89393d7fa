"""The subject of a store check: an open store, how to open another over the same data, and values to store."""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from warren.domain.lifecycle import Status
from warren.domain.records import ApiKey, AuditEntry, Execution, Owner, Sandbox, Scope, Skill, StoredFile
from warren.domain.values import Cause, Display, ExecKind, ExecResult, FileChange, State, new_id

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from warren.stores.base import Store


@dataclass(frozen=True, slots=True)
class StoreSubject:
    """The store under check."""

    store: Store
    """Open and empty; the checks never close it."""
    make_store: Callable[[], Store]
    """Build another store object over the same data, not yet open, as a restarted service does."""

    @contextlib.asynccontextmanager
    async def reopened(self) -> AsyncIterator[Store]:
        """Open another store over the same data, for the length of a block."""
        store = self.make_store()
        await store.open()
        try:
            yield store
        finally:
            await store.close()

    async def add(self, **fields: Any) -> Sandbox:
        """Store a sandbox of `make_sandbox`."""
        sandbox = make_sandbox(**fields)
        await self.store.add(sandbox)
        return sandbox

    async def get(self, sandbox_id: str) -> Sandbox:
        """Return a stored sandbox, which must be there."""
        found = await self.store.get(sandbox_id)
        assert found is not None
        return found


OWNER = Owner("acme", "ann")
OTHER = Owner("acme", "bob")


def make_sandbox(**fields: Any) -> Sandbox:
    """Build a running sandbox with a new id; arguments replace the defaults."""
    now = time.time()
    plain: dict[str, Any] = {
        "id": new_id("sbx"),
        "owner": OWNER,
        "status": Status.RUNNING,
        "engine": "bare",
        "image": "data",
        "image_digest": "0" * 32,
        "created_at": now,
        "active_at": now,
        "changed_at": now,
    }
    return Sandbox(**{**plain, **fields})


def make_execution(sandbox: Sandbox, **fields: Any) -> Execution:
    """Build a running execution; arguments replace the defaults."""
    plain: dict[str, Any] = {
        "id": new_id("exe"),
        "sandbox_id": sandbox.id,
        "owner": sandbox.owner,
        "kind": ExecKind.CELL,
        "kernel": "main",
        "code": "print(1)",
        "request_id": new_id("req"),
        "started_at": time.time(),
    }
    return Execution(**{**plain, **fields})


def make_result(**fields: Any) -> ExecResult:
    """Build a result that uses every field; arguments replace the defaults."""
    plain: dict[str, Any] = {
        "id": new_id("exe"),
        "exit_code": 1,
        "cause": Cause.ERROR,
        "state": State.KEPT,
        "stdout": b"text \xff\x00 and bytes",
        "stderr": "Grüße\n".encode(),
        "stdout_bytes": 1 << 40,
        "stderr_bytes": 8,
        "truncated": True,
        "displays": (
            Display({"text/plain": "1", "image/png": "AA=="}, {"width": 3, "deep": [1, None, {"a": 0.1}]}, True),
        ),
        "error": {"name": "ValueError", "value": "half a pair: \ud83d"},
        "limit": 0.1,
        "peak": 3.0,
        "cells_back": 2,
        "protected": False,
        "why_unprotected": "threads",
        "files_changed": (FileChange("a\udcff.txt", "created", 3),),
        "files_changed_complete": False,
        "duration_ms": 1.25,
        "cpu_ms": 0.1,
        "hint": "Look at line 3.",
        "notes": ("one", "two"),
    }
    return ExecResult(**{**plain, **fields})


def make_entry(**fields: Any) -> AuditEntry:
    """Build an audit entry; arguments replace the defaults."""
    plain: dict[str, Any] = {
        "at": time.time(),
        "action": "sandbox.create",
        "outcome": "ok",
        "tenant": OWNER.tenant,
        "subject": OWNER.subject,
        "details": {"image": "data"},
    }
    return AuditEntry(**{**plain, **fields})


def make_key(**fields: Any) -> ApiKey:
    """Build a valid key; arguments replace the defaults."""
    plain: dict[str, Any] = {
        "id": new_id("key"),
        "name": new_id("nam"),
        "hash": new_id("sha"),
        "tenant": OWNER.tenant,
        "subject": OWNER.subject,
        "scope": Scope.RUN,
        "created_at": time.time(),
    }
    return ApiKey(**{**plain, **fields})


def make_file(**fields: Any) -> StoredFile:
    """Build an unexpired stored file of 10 bytes; arguments replace the defaults."""
    plain: dict[str, Any] = {
        "id": new_id("fil"),
        "owner": OWNER,
        "name": "Bericht \udcff.csv",
        "size": 10,
        "sha256": "0" * 64,
        "blob": new_id("blo"),
        "created_at": time.time(),
        "expires_at": time.time() + 3600,
    }
    return StoredFile(**{**plain, **fields})


def make_skill(**fields: Any) -> Skill:
    """Build a skill with a new name that uses every field; arguments replace the defaults."""
    plain: dict[str, Any] = {
        "id": new_id("skl"),
        "owner": OWNER,
        "name": new_id("nam").replace("_", "-"),
        "description": "Grüße \udcff",
        "source": "imported",
        "category": "data",
        "tags": ("one", "two"),
        "metadata": {"version": 1.5, "deep": [None, {"a": "b"}]},
        "server_id": "abc",
        "folder": "inner",
        "blob": new_id("blo"),
        "size": 1 << 20,
        "sha256": "0" * 64,
        "created_at": 1.5,
        "changed_at": 2.5,
    }
    return Skill(**{**plain, **fields})
