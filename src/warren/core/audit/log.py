"""Audit record: entries in order, written behind in batches, never dropped."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import time
from collections import deque
from typing import TYPE_CHECKING, Any

import anyio

from warren.core.audit.details import bound_details
from warren.domain.errors import Error, Forbidden, StoreError
from warren.domain.records import AuditEntry, Scope

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from warren.core.policy.policy import Policy
    from warren.domain.records import AuditQuery, AuditRow, Caller, Page, Principal
    from warren.stores.base import Store

_log = logging.getLogger(__name__)
_BATCH = 128
BACKLOG = 20_000
BACKLOG_BYTES = 64 << 20
"""Bytes that may wait to be written; above that, operations are refused."""
_RETRY_S = (0.05, 0.2, 1.0, 5.0)
WINDOW_S = 60.0
"""Within which failed logins are counted together."""
EACH = 60
"""Entries per address and minute."""
ALL = 600
"""Entries per minute, of all addresses."""
_NAMED = 20
"""Addresses that the shared entry names."""
_KNOWN = 1000
"""Addresses that are counted separately within one minute."""


class Audit:
    """Accepts entries at once and writes them soon. `run` is a task of the service; `flush` works without it."""

    def __init__(self, store: Store, policy: Policy) -> None:
        self.policy = policy
        self.before_look: list[Callable[[], None]] = []
        """Called before the record is read, to note pending events."""
        self._store = store
        self._backlog: deque[tuple[AuditEntry, int]] = deque()
        self._backlog_bytes = 0
        self.noted = 0
        """The number of the last queued entry."""
        self.written = 0
        """The number of the last entry on disk."""
        self._writing = anyio.Lock(fast_acquire=True)
        self._wake = anyio.Event()
        self._refusals = LoginFailures()
        self._failure: StoreError | None = None
        """The failure of the last write."""

    def note(
        self,
        caller: Caller | None,
        action: str,
        *,
        outcome: str = "ok",
        sandbox_id: str = "",
        execution_id: str = "",
        **details: object,
    ) -> None:
        """Queue an entry. Without a caller, the service itself is the actor."""
        if caller is not None and caller.link_id:
            details |= {"via": "link", "link": caller.link_id}
        bounded, size = bound_details(details)
        entry = AuditEntry(
            at=time.time(),
            action=action,
            outcome=outcome,
            sandbox_id=sandbox_id,
            execution_id=execution_id,
            details=bounded,
            **_who(caller),
        )
        self._put(entry, size)

    async def record(self, caller: Caller | None, action: str, **details: Any) -> None:
        """Queue an entry, and wait until it is on disk. Raises StoreError when it is not yet; it stays queued."""
        self.note(caller, action, **details)
        await self.flush()

    @contextlib.asynccontextmanager
    async def operation(
        self, caller: Caller, action: str, *, unfinished: str = "cancelled", with_message: bool = False, **details: Any
    ) -> AsyncIterator[dict[str, Any]]:
        """Audit the outcome of an operation before its response; the body may add details.

        `unfinished` is the outcome when neither the body nor an Error ends it; `with_message` adds the message of an
        Error.
        """
        outcome = unfinished
        try:
            yield details
            outcome = "ok"
        except Error as error:
            outcome = error.code
            if with_message:
                details["error"] = str(error)
            raise
        finally:
            self.note(caller, action, outcome=outcome, **details)
            await self.settle()

    def refuse(self, reason: str, *, address: str = "", request_id: str = "", who: Principal | None = None) -> None:
        """Note a failed login. Many within a minute become one entry with a count."""
        self._collect_refusals()
        if not self._refusals.count(address):
            return
        entry = AuditEntry(
            at=time.time(), action="auth.refuse", outcome="unauthenticated", address=address, request_id=request_id
        )
        if who is not None:
            entry = dataclasses.replace(entry, tenant=who.tenant, subject=who.subject, key_id=who.key_id or "")
        self._put(dataclasses.replace(entry, details={"reason": reason}), len(reason))

    def check_writable(self) -> None:
        """Raise StoreError when the last write failed: the operation could not be audited."""
        if self._failure is not None:
            raise StoreError(f"nothing is done that cannot be recorded: {self._failure}")
        self.check_room()

    def check_room(self) -> None:
        """Raise StoreError when the backlog is so large that reads are refused too."""
        if len(self._backlog) >= BACKLOG or self._backlog_bytes >= BACKLOG_BYTES:
            raise StoreError(
                f"the audit record cannot be written and {len(self._backlog)} entries wait: "
                "nothing is done that cannot be recorded"
            )

    @property
    def backlog(self) -> int:
        """The number of entries that are not on disk yet."""
        return len(self._backlog)

    async def run(self) -> None:
        """Write queued entries until the service stops. Failed writes are retried."""
        failures = 0
        while True:
            timeout_s = WINDOW_S if not failures else _RETRY_S[min(failures, len(_RETRY_S)) - 1]
            with anyio.move_on_after(timeout_s):
                if failures:
                    await anyio.sleep_forever()
                await self._wake.wait()
            self._collect_refusals()
            try:
                await self.flush()
                failures = 0
            except StoreError as exc:
                failures += 1
                _log.warning("audit.write_failed", extra={"backlog": len(self._backlog), "reason": str(exc)})

    async def flush(self) -> None:
        """Write all queued entries. Raises StoreError; unwritten entries stay queued."""
        wanted = self.noted
        while self.written < wanted:
            async with self._writing:
                if self.written < wanted:
                    await self._write_batch()

    async def settle(self) -> None:
        """Wait until the entries so far are on disk, before a response; a failure leaves them queued."""
        if self.written < self.noted:
            with contextlib.suppress(StoreError):
                await self.flush()

    async def close(self) -> None:
        """Write the last entries. Raises StoreError when some are lost."""
        self._collect_refusals(now=True)
        await self.flush()

    async def list(self, caller: Caller, query: AuditQuery) -> Page[AuditRow]:
        """Return a page of the record, newest first; without the admin scope, the caller's own entries only."""
        principal = caller.principal
        if not principal.may(Scope.ADMIN):
            asked = (query.tenant or principal.tenant, query.subject or principal.subject)
            if asked != principal.owner:
                raise Forbidden("only a key with the admin scope can read what others did")
            query = dataclasses.replace(query, tenant=principal.tenant, subject=principal.subject)
        await self._complete()
        return await self._store.audit(query)

    async def verify(self) -> tuple[int, str]:
        """Verify the whole chain, and return its last number and hash. Raises Conflict, which names the row."""
        await self.flush()
        return await self._store.verify()

    async def export(self, *, since: float | None = None, until: float | None = None) -> AsyncIterator[AuditRow]:
        """Yield the rows of a period, oldest first."""
        await self._complete()
        async for row in self._store.chain():
            if (since is None or row.entry.at >= since) and (until is None or row.entry.at < until):
                yield row

    async def _complete(self) -> None:
        """Write all pending entries before a read, including those of responses just sent."""
        for note in self.before_look:
            note()
        with contextlib.suppress(StoreError):
            await self.flush()

    def _put(self, entry: AuditEntry, size: int) -> None:
        self._backlog.append((entry, size))
        self._backlog_bytes += size
        self.noted += 1
        self._wake.set()

    def _collect_refusals(self, *, now: bool = False) -> None:
        rest = self._refusals.collect(now=now)
        if rest is not None:
            self.note(None, "auth.refuse_many", outcome="unauthenticated", **rest)

    async def _write_batch(self) -> None:
        batch = [self._backlog[i] for i in range(min(_BATCH, len(self._backlog)))]
        # Shielded: a write that was cancelled half-way would be repeated.
        try:
            with anyio.CancelScope(shield=True):
                await self._store.append(*(entry for entry, _ in batch))
        except StoreError as error:
            self._failure = error
            raise
        self._failure = None
        for _, size in batch:
            self._backlog.popleft()
            self._backlog_bytes -= size
        self.written += len(batch)
        if not self._backlog:
            self._wake = anyio.Event()


def _who(caller: Caller | None) -> dict[str, str]:
    if caller is None:
        return {}
    who = caller.principal
    return {
        "tenant": who.tenant,
        "subject": who.subject,
        "key_id": who.key_id or "",
        "request_id": caller.request_id,
        "address": caller.address,
    }


class LoginFailures:
    """Failed logins: the first of a minute get their own audit entry, the rest are counted and share one."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._ends = 0.0
        self._seen: dict[str, int] = {}
        self._rest: dict[str, int] = {}
        self._alone = 0

    def count(self, address: str) -> bool:
        """Count a failed login; True if it gets its own entry. Call `collect` before."""
        if address not in self._seen and len(self._seen) >= _KNOWN:
            address = ""
        seen = self._seen[address] = self._seen.get(address, 0) + 1
        if seen <= EACH and self._alone < ALL:
            self._alone += 1
            return True
        self._rest[address] = self._rest.get(address, 0) + 1
        return False

    def collect(self, *, now: bool = False) -> dict[str, Any] | None:
        """Start a new minute if it is time, or `now`; return the counts of the last one."""
        at = self._clock()
        if not now and at < self._ends:
            return None
        rest, self._rest = self._rest, {}
        self._seen.clear()
        self._alone = 0
        self._ends = at + WINDOW_S
        if not rest:
            return None
        most = sorted(rest.items(), key=lambda pair: -pair[1])[:_NAMED]
        return {"count": sum(rest.values()), "addresses": dict(most)}
