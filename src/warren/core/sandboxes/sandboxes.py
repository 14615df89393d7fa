"""The use cases of sandboxes: create, get, list, update, stop, start, delete, measure and use them."""

from __future__ import annotations

import contextlib
import dataclasses
from typing import TYPE_CHECKING, Any

from warren.core.policy.egress_rules import describe_egress
from warren.core.policy.free_space import FreeSpace
from warren.core.policy.policy import check_may
from warren.core.sandboxes.creation import Creation, NewSandbox
from warren.core.sandboxes.live import LiveSandbox
from warren.core.sandboxes.transitions import SandboxTransitions
from warren.core.telemetry.counters import Counters
from warren.core.telemetry.tracing import Tracer
from warren.domain.errors import Conflict, Error, Forbidden, NotFound, SandboxLost
from warren.domain.lifecycle import Status
from warren.domain.records import Page, Sandbox, Scope
from warren.domain.values import Handle, Storage, Usage
from warren.stores.base import ResourceUseExceeded

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from contextlib import AbstractAsyncContextManager

    from warren.core.audit.log import Audit
    from warren.core.concurrency.admission import Admission
    from warren.core.images.cache import ImageCache
    from warren.core.policy.policy import Policy
    from warren.core.sandboxes.changes import SandboxChanges
    from warren.core.sandboxes.connections import AgentConnections
    from warren.core.sandboxes.pool import SandboxPool
    from warren.domain.records import Caller, Owner, SandboxQuery
    from warren.domain.values import Limits
    from warren.engines.base import Engine
    from warren.stores.base import Store

__all__ = ["LiveSandbox", "NewSandbox", "Sandboxes"]

_NOTHING = Usage(memory_bytes=0, memory_peak_bytes=None, cpu_us=None, pids=0, disk_bytes=None, disk_inodes=None)


class Sandboxes:
    """The use cases of all sandboxes, with their access rules.

    An owner sees and uses its own sandboxes; for other principals they do not exist. With the admin scope all can be
    seen and ended, but not used: that is Forbidden rather than NotFound, since an admin sees that they exist.
    """

    def __init__(
        self,
        *,
        engine: Engine,
        store: Store,
        connections: AgentConnections,
        pool: SandboxPool,
        images: ImageCache,
        admission: Admission,
        audit: Audit,
        policy: Policy,
        space: FreeSpace | None = None,
        observer: Counters | None = None,
        tracer: Tracer | None = None,
    ) -> None:
        self.space = space or FreeSpace()
        self.transitions = SandboxTransitions(
            engine=engine,
            store=store,
            connections=connections,
            images=images,
            audit=audit,
            policy=policy,
            space=self.space,
        )
        self._engine = engine
        self._store = store
        self._admission = admission
        self._audit = audit
        self._policy = policy
        self._tracer = tracer or Tracer()
        self.on_egress: Callable[[str], None] = lambda _sandbox_id: None
        """Called with the id of each sandbox whose egress policy has changed."""
        self._creation = Creation(
            engine=engine,
            store=store,
            connections=connections,
            pool=pool,
            images=images,
            transitions=self.transitions,
            policy=policy,
            observer=observer or Counters(),
        )

    async def create(self, caller: Caller, new: NewSandbox) -> tuple[Sandbox, bool]:
        """Make a sandbox, or find the one of that session or idempotency key and start it; True when it is new.

        Raises NotFound for an image that is not built, QuotaExceeded, Overloaded, or the engine's error.
        """
        async with self.audited(caller, "sandbox.create", image=new.image, storage=new.storage) as noted:
            check_may(caller, Scope.RUN)
            self._audit.check_writable()
            while True:
                live = await self._find_session(caller, new)
                is_new = False
                if live is None:
                    self.space.check()
                    with self._tracer.span("sandbox.create") as span:
                        live, is_new = await self._make(caller, new)
                        span.set({"warren.sandbox_id": live.id, "warren.image": live.sandbox.image})
                noted.update(sandbox_id=live.id, is_new=is_new)
                if is_new:
                    noted.update(describe_egress(live.sandbox.egress))
                    noted.update({"gpus": live.sandbox.gpus} if live.sandbox.gpus else {})
                    return live.sandbox, True
                # If it is gone, its create failed or it was deleted meanwhile: then we make it.
                if await self._join(live):
                    return await self._render(live), False

    async def get(self, caller: Caller, sandbox_id: str) -> Sandbox:
        """Return a sandbox. Raises NotFound, also for one of another owner."""
        check_may(caller, Scope.READ)
        sandbox = await self._store.get(sandbox_id)
        if sandbox is None or not _may_see(caller, sandbox):
            raise _not_found(sandbox_id)
        return self._freshen(sandbox)

    async def find(self, caller: Caller, session_key: str) -> Sandbox:
        """Return the caller's own sandbox of a session key. Raises NotFound, also for one of another owner."""
        check_may(caller, Scope.READ)
        sandbox = await self._store.find(caller.principal.owner, session_key)
        if sandbox is None:
            raise NotFound(f"there is no sandbox of the session key {session_key[:64]!r}")
        return self._freshen(sandbox)

    async def list(self, caller: Caller, query: SandboxQuery) -> Page[Sandbox]:
        """Return a page of the caller's sandboxes, newest first; with the admin scope of any owner, or of all."""
        check_may(caller, Scope.READ)
        if not caller.principal.may(Scope.ADMIN):
            query = dataclasses.replace(query, owner=caller.principal.owner)
        page = await self._store.list(query)
        return dataclasses.replace(page, items=tuple(map(self._freshen, page.items)))

    async def update(self, caller: Caller, sandbox_id: str, changes: SandboxChanges) -> Sandbox:
        """Change what can be changed while it lives. A stopped sandbox gets its new limits when it is started.

        Raises Conflict for another size of the disk, Unsupported where the engine cannot resize, or QuotaExceeded.
        """
        async with (
            self.audited(caller, "sandbox.update", sandbox_id=sandbox_id),
            self.hold(caller, sandbox_id, Scope.RUN) as live,
        ):
            if live.sandbox.status is Status.RUNNING and not live.is_ready:
                await self.transitions.reach(live)
            before = live.sandbox
            fields = changes.choose(before, self._policy)
            is_resized = fields["limits"] != before.limits
            await self.transitions.write(live, before.status, check_quota=is_resized, **fields)
            if live.sandbox.egress != before.egress:
                self._audit.note(caller, "egress.set", sandbox_id=sandbox_id, **describe_egress(live.sandbox.egress))
                self.on_egress(sandbox_id)
            if is_resized and before.status is Status.RUNNING:
                await self._resize(live, before.limits)
            return await self._render(live)

    async def stop(self, caller: Caller, sandbox_id: str) -> Sandbox:
        """End its processes and free its memory; the workspace stays. One that is stopped already stays so.

        Raises Conflict for an ephemeral one: its workspace would go too, and that is what delete is for.
        """
        async with (
            self.audited(caller, "sandbox.stop", sandbox_id=sandbox_id),
            self.hold(caller, sandbox_id, Scope.RUN, by_admin=True) as live,
        ):
            if live.sandbox.storage is not Storage.PERSISTENT:
                raise Conflict(
                    f"sandbox {sandbox_id} is ephemeral: stopping would lose its workspace, so delete it instead"
                )
            if live.sandbox.status is Status.RUNNING:
                await self.transitions.stop(live)
            return await self._render(live)

    async def start(self, caller: Caller, sandbox_id: str) -> Sandbox:
        """Run a stopped sandbox again, with its workspace; one that runs already goes on."""
        async with (
            self.audited(caller, "sandbox.start", sandbox_id=sandbox_id),
            self.hold(caller, sandbox_id, Scope.RUN) as live,
        ):
            await self.transitions.have_running(live)
            return await self._render(live)

    async def delete(self, caller: Caller, sandbox_id: str) -> None:
        """Remove it, workspace and all, whatever it is doing."""
        async with (
            self.audited(caller, "sandbox.delete", sandbox_id=sandbox_id),
            self.hold(caller, sandbox_id, Scope.RUN, by_admin=True) as live,
        ):
            await self.transitions.destroy(live)

    async def forget(self, caller: Caller, sandbox_id: str) -> None:
        """Remove the record of a sandbox whose engine will not come back. Needs the admin scope.

        Raises Conflict for one that this service's engine has: `delete` removes it, workspace and all.
        """
        async with self.audited(caller, "sandbox.forget", sandbox_id=sandbox_id):
            check_may(caller, Scope.ADMIN)
            live = await self.transitions.find(sandbox_id)
            if live is None:
                raise _not_found(sandbox_id)
            if self.transitions.is_ours(live.sandbox):
                raise Conflict(f"sandbox {sandbox_id} is one of this service's engine: delete it without forget")
            await self._store.remove(sandbox_id)
            self.transitions.forget(live)

    async def usage(self, caller: Caller, sandbox_id: str) -> Usage:
        """Measure a sandbox from outside. A stopped one uses only its disk, which cannot be measured then."""
        sandbox = await self.get(caller, sandbox_id)
        self.transitions.check_ours(sandbox)
        if sandbox.status is not Status.RUNNING:
            return _NOTHING
        try:
            return await self._engine.usage(Handle(sandbox.engine, sandbox.id))
        except SandboxLost:
            # It may have been stopped or deleted while it was measured.
            if (await self.get(caller, sandbox_id)).status is Status.RUNNING:
                raise
            return _NOTHING

    @contextlib.asynccontextmanager
    async def use(self, caller: Caller, sandbox_id: str, scope: Scope = Scope.RUN) -> AsyncIterator[LiveSandbox]:
        """Use a running sandbox, out of reach of the reaper: resumes a stopped one, waits for one that is being made.

        Raises NotFound, also for one of another owner (Forbidden to an admin), and SandboxLost when it turns out to be
        gone.
        """
        check_may(caller, scope)
        live = self.transitions.live_sandboxes.get(sandbox_id)
        is_owner = live is not None and live.sandbox.owner == caller.principal.owner
        # The holder of the lock may be about to end it.
        if live is None or not is_owner or not live.is_ready or live.lock.locked():
            async with self.hold(caller, sandbox_id, scope) as live:
                await self.transitions.have_running(live)
        with live.busy():
            yield live

    @contextlib.asynccontextmanager
    async def hold(
        self, caller: Caller, sandbox_id: str, scope: Scope, *, by_admin: bool = False
    ) -> AsyncIterator[LiveSandbox]:
        """Lock a sandbox that the caller may change, and finish a step that failed half-way.

        Raises NotFound; and Forbidden to an admin, who sees that it exists, for what only its owner may do.
        """
        check_may(caller, scope)
        live = await self.transitions.find(sandbox_id)
        is_owner = live is not None and live.sandbox.owner == caller.principal.owner
        is_admin = caller.principal.may(Scope.ADMIN)
        if live is None or not (is_owner or is_admin):
            raise _not_found(sandbox_id)
        if not is_owner and not by_admin:
            raise not_yours(sandbox_id)
        self.transitions.check_ours(live.sandbox)
        async with live.held():
            await self.transitions.settle(live)
            if live.is_gone:
                raise _not_found(sandbox_id)
            yield live

    async def _find_session(self, caller: Caller, new: NewSandbox) -> LiveSandbox | None:
        if new.session_key is None:
            return None
        found = await self._store.find(caller.principal.owner, new.session_key)
        return None if found is None else await self.transitions.find(found.id)

    async def _make(self, caller: Caller, new: NewSandbox) -> tuple[LiveSandbox, bool]:
        """Make it, or find the call that does. A create over quota waits for deletions in progress and tries again.

        While it waits it holds no place that another create could use.
        """
        waited_for: set[Owner | str | None] = set()
        while True:
            # Before the store counts: a deletion that ends right after the count would be missed otherwise.
            seen = self.transitions.pending_deletes.look()
            try:
                async with self._admission.creating(caller.principal, is_again=bool(waited_for)):
                    return await self._creation.make(caller.principal.owner, new)
            except ResourceUseExceeded as error:
                if error.whose in waited_for or not await self.transitions.pending_deletes.wait(seen, error.whose):
                    raise
                waited_for.add(error.whose)

    async def _join(self, live: LiveSandbox) -> bool:
        """Start a sandbox that another call made or makes; False when it is gone. Raises Conflict."""
        self.transitions.check_ours(live.sandbox)
        async with live.held():
            try:
                await self.transitions.settle(live)
                await self.transitions.have_running(live)
            except SandboxLost:
                if not live.is_gone:
                    raise
        return not live.is_gone

    async def _resize(self, live: LiveSandbox, before: Limits) -> None:
        limits = live.sandbox.limits
        try:
            await self._engine.resize(live.handle, limits)
            await live.agent.configure(limits=dataclasses.asdict(limits))
        except Error:
            await self.transitions.write(live, Status.RUNNING, limits=before)
            raise

    async def _render(self, live: LiveSandbox) -> Sandbox:
        """Return a sandbox as the store has it, which counts the executions."""
        return self._freshen(await self._store.get(live.id) or live.sandbox)

    def _freshen(self, sandbox: Sandbox) -> Sandbox:
        """Add the time of the last use, which only this process knows."""
        live = self.transitions.live_sandboxes.get(sandbox.id)
        active_at = sandbox.active_at if live is None else max(sandbox.active_at, live.active_at)
        return dataclasses.replace(sandbox, active_at=active_at)

    def audited(
        self, caller: Caller, action: str, *, sandbox_id: str = "", **details: Any
    ) -> AbstractAsyncContextManager[dict[str, Any]]:
        """Audit the outcome of an operation on a sandbox before it is answered; the body may add details."""
        return self._audit.operation(caller, action, with_message=True, sandbox_id=sandbox_id, **details)


def _may_see(caller: Caller, sandbox: Sandbox) -> bool:
    return sandbox.owner == caller.principal.owner or caller.principal.may(Scope.ADMIN)


def not_yours(sandbox_id: str) -> Forbidden:
    """Build the refusal for an admin who is not the owner."""
    return Forbidden(f"sandbox {sandbox_id} is another's: with the scope admin you may see and end it, but not use it")


def _not_found(sandbox_id: str) -> NotFound:
    return NotFound(f"there is no sandbox {sandbox_id[:64]}")
