"""The use cases of sandboxes: create, get, list, update, stop, start, delete, measure and use them."""

from __future__ import annotations

import contextlib
import dataclasses
from typing import TYPE_CHECKING, Any

from warren.core.policy.access import check_may
from warren.core.policy.egress_rules import describe_egress
from warren.core.sandboxes.creation import Creation, NewSandbox
from warren.core.sandboxes.live import Place
from warren.core.sandboxes.transitions import Lives
from warren.core.telemetry.counters import Observer
from warren.core.telemetry.tracing import Tracer
from warren.domain.errors import Conflict, Error, Forbidden, NotFound, SandboxLost
from warren.domain.lifecycle import Status
from warren.domain.records import Page, Sandbox, Scope
from warren.domain.values import Handle, Storage, Usage
from warren.stores.base import HoldingExceeded

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from contextlib import AbstractAsyncContextManager

    from warren.core.audit.log import Audit
    from warren.core.concurrency.admission import Admission
    from warren.core.images.cache import ImageCache
    from warren.core.policy.policy import Policy
    from warren.core.sandboxes.changes import SandboxChanges
    from warren.core.sandboxes.connections import Links
    from warren.core.sandboxes.pool import Pool
    from warren.domain.records import Caller, Owner, SandboxQuery
    from warren.domain.values import Limits
    from warren.engines.base import Engine
    from warren.stores.base import Store

__all__ = ["NewSandbox", "Place", "Sandboxes"]

_NOTHING = Usage(memory_bytes=0, memory_peak_bytes=None, cpu_us=None, pids=0, disk_bytes=None, disk_inodes=None)


class Sandboxes:
    """Every sandbox there is, for whoever may see it.

    Owners see and do everything with theirs; to anybody else they do not exist. With the admin scope everybody's can
    be seen and ended, but not used: that is Forbidden, since whoever sees a sandbox knows that it exists.
    """

    def __init__(
        self,
        *,
        engine: Engine,
        store: Store,
        links: Links,
        pool: Pool,
        images: ImageCache,
        admission: Admission,
        audit: Audit,
        policy: Policy,
        observer: Observer | None = None,
        tracer: Tracer | None = None,
    ) -> None:
        self.lives = Lives(engine=engine, store=store, links=links, images=images, audit=audit, policy=policy)
        self._engine = engine
        self._store = store
        self._admission = admission
        self._audit = audit
        self._policy = policy
        self._tracer = tracer or Tracer()
        self.on_egress: Callable[[str], None] = lambda _sandbox_id: None
        """Called with the id of each sandbox that may reach something else from now on."""
        self._creation = Creation(
            engine=engine,
            store=store,
            links=links,
            pool=pool,
            images=images,
            lives=self.lives,
            policy=policy,
            observer=observer or Observer(),
        )

    async def create(self, caller: Caller, new: NewSandbox) -> tuple[Sandbox, bool]:
        """Make a sandbox, or find the one of that session or idempotency key, and have it running; True when it is new.

        Raises NotFound for an image that is not there, QuotaExceeded, Overloaded, or what the engine said.
        """
        async with self.audited(caller, "sandbox.create", image=new.image, storage=new.storage) as noted:
            check_may(caller, Scope.RUN)
            self._audit.check_writable()
            while True:
                place = await self._find_session(caller, new)
                is_new = False
                if place is None:
                    with self._tracer.span("sandbox.create") as span:
                        place, is_new = await self._make(caller, new)
                        span.set({"warren.sandbox_id": place.id, "warren.image": place.sandbox.image})
                noted.update(sandbox_id=place.id, is_new=is_new)
                if is_new:
                    noted.update(describe_egress(place.sandbox.egress))
                    noted.update({"gpus": place.sandbox.gpus} if place.sandbox.gpus else {})
                    return place.sandbox, True
                # If it is gone, whoever made it has failed or deleted it meanwhile: then it is ours to make.
                if await self._join(place):
                    return await self._render(place), False

    async def get(self, caller: Caller, sandbox_id: str) -> Sandbox:
        """Return a sandbox. Raises NotFound, also for somebody else's."""
        check_may(caller, Scope.READ)
        sandbox = await self._store.get(sandbox_id)
        if sandbox is None or not _may_see(caller, sandbox):
            raise _not_found(sandbox_id)
        return self._freshen(sandbox)

    async def find(self, caller: Caller, session_key: str) -> Sandbox:
        """Return the caller's own sandbox of a session key. Raises NotFound, also for somebody else's."""
        check_may(caller, Scope.READ)
        sandbox = await self._store.find(caller.principal.owner, session_key)
        if sandbox is None:
            raise NotFound(f"there is no sandbox of the session key {session_key[:64]!r}")
        return self._freshen(sandbox)

    async def list(self, caller: Caller, query: SandboxQuery) -> Page[Sandbox]:
        """Return a page of the caller's sandboxes, newest first; with the admin scope of anybody's, or everybody's."""
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
            self.hold(caller, sandbox_id, Scope.RUN) as place,
        ):
            if place.sandbox.status is Status.RUNNING and not place.is_ready:
                await self.lives.reach(place)
            before = place.sandbox
            fields = changes.choose(before, self._policy)
            is_resized = fields["limits"] != before.limits
            await self.lives.write(place, before.status, check_quota=is_resized, **fields)
            if place.sandbox.egress != before.egress:
                self._audit.note(caller, "egress.set", sandbox_id=sandbox_id, **describe_egress(place.sandbox.egress))
                self.on_egress(sandbox_id)
            if is_resized and before.status is Status.RUNNING:
                await self._resize(place, before.limits)
            return await self._render(place)

    async def stop(self, caller: Caller, sandbox_id: str) -> Sandbox:
        """End its processes and free its memory; the workspace stays. One that is stopped already stays so.

        Raises Conflict for an ephemeral one: its workspace would go too, and whoever wants that deletes it.
        """
        async with (
            self.audited(caller, "sandbox.stop", sandbox_id=sandbox_id),
            self.hold(caller, sandbox_id, Scope.RUN, by_admin=True) as place,
        ):
            if place.sandbox.storage is not Storage.PERSISTENT:
                raise Conflict(
                    f"sandbox {sandbox_id} is ephemeral: stopping would lose its workspace, so delete it instead"
                )
            if place.sandbox.status is Status.RUNNING:
                await self.lives.stop(place)
            return await self._render(place)

    async def start(self, caller: Caller, sandbox_id: str) -> Sandbox:
        """Run a stopped sandbox again, with its workspace; one that runs already goes on."""
        async with (
            self.audited(caller, "sandbox.start", sandbox_id=sandbox_id),
            self.hold(caller, sandbox_id, Scope.RUN) as place,
        ):
            await self.lives.have_running(place)
            return await self._render(place)

    async def delete(self, caller: Caller, sandbox_id: str) -> None:
        """Remove it, workspace and all, whatever it is doing."""
        async with (
            self.audited(caller, "sandbox.delete", sandbox_id=sandbox_id),
            self.hold(caller, sandbox_id, Scope.RUN, by_admin=True) as place,
        ):
            await self.lives.destroy(place)

    async def usage(self, caller: Caller, sandbox_id: str) -> Usage:
        """Measure a sandbox from outside. A stopped one uses nothing but its disk, which nobody can measure then."""
        sandbox = await self.get(caller, sandbox_id)
        if sandbox.status is not Status.RUNNING:
            return _NOTHING
        try:
            return await self._engine.usage(Handle(sandbox.engine, sandbox.id))
        except SandboxLost:
            # It may have been stopped, or deleted, while it was measured: then that is what there is to say.
            if (await self.get(caller, sandbox_id)).status is Status.RUNNING:
                raise
            return _NOTHING

    @contextlib.asynccontextmanager
    async def use(self, caller: Caller, sandbox_id: str, scope: Scope = Scope.RUN) -> AsyncIterator[Place]:
        """Have a sandbox running and keep the reaper from it: resumes a stopped one, waits for one that is being made.

        Raises NotFound, also for somebody else's, Forbidden to an admin for those, and SandboxLost when it turns out to
        be gone.
        """
        check_may(caller, scope)
        place = self.lives.places.get(sandbox_id)
        is_owner = place is not None and place.sandbox.owner == caller.principal.owner
        # Whoever holds the lock may be about to end it.
        if place is None or not is_owner or not place.is_ready or place.lock.locked():
            async with self.hold(caller, sandbox_id, scope) as place:
                await self.lives.have_running(place)
        with place.busy():
            yield place

    @contextlib.asynccontextmanager
    async def hold(
        self, caller: Caller, sandbox_id: str, scope: Scope, *, by_admin: bool = False
    ) -> AsyncIterator[Place]:
        """Hold the place of a sandbox that the caller may change, with nothing left half done.

        Raises NotFound; and Forbidden to an admin, who sees that it exists, for what only its owner may do.
        """
        check_may(caller, scope)
        place = await self.lives.find(sandbox_id)
        is_owner = place is not None and place.sandbox.owner == caller.principal.owner
        is_admin = caller.principal.may(Scope.ADMIN)
        if place is None or not (is_owner or is_admin):
            raise _not_found(sandbox_id)
        if not is_owner and not by_admin:
            raise not_yours(sandbox_id)
        async with place.held():
            await self.lives.settle(place)
            if place.is_gone:
                raise _not_found(sandbox_id)
            yield place

    async def _find_session(self, caller: Caller, new: NewSandbox) -> Place | None:
        if new.session_key is None:
            return None
        found = await self._store.find(caller.principal.owner, new.session_key)
        return None if found is None else await self.lives.find(found.id)

    async def _make(self, caller: Caller, new: NewSandbox) -> tuple[Place, bool]:
        """Make it, or find who does; in the place of a one-shot, too, that is answered though its sandbox still goes.

        Whoever waits for that holds nothing that others could want meanwhile.
        """
        waited_for: set[Owner | str | None] = set()
        while True:
            # Before the store looks: one that goes right after that has gone in vain otherwise.
            seen = self.lives.leaving.look()
            try:
                async with self._admission.creating(caller.principal, is_again=bool(waited_for)):
                    return await self._creation.make(caller.principal.owner, new)
            except HoldingExceeded as error:
                if error.whose in waited_for or not await self.lives.leaving.wait(seen, error.whose):
                    raise
                waited_for.add(error.whose)

    async def _join(self, place: Place) -> bool:
        """Have a sandbox running that somebody else made or makes; False when it is gone."""
        async with place.held():
            try:
                await self.lives.settle(place)
                await self.lives.have_running(place)
            except SandboxLost:
                if not place.is_gone:
                    raise
        return not place.is_gone

    async def _resize(self, place: Place, before: Limits) -> None:
        limits = place.sandbox.limits
        try:
            await self._engine.resize(place.handle, limits)
            await place.link.configure(limits=dataclasses.asdict(limits))
        except Error:
            await self.lives.write(place, Status.RUNNING, limits=before)
            raise

    async def _render(self, place: Place) -> Sandbox:
        """Return a sandbox as the store has it: that counts the executions."""
        return self._freshen(await self._store.get(place.id) or place.sandbox)

    def _freshen(self, sandbox: Sandbox) -> Sandbox:
        """Put in what only this process knows: when it was last used."""
        place = self.lives.places.get(sandbox.id)
        active_at = sandbox.active_at if place is None else max(sandbox.active_at, place.active_at)
        return dataclasses.replace(sandbox, active_at=active_at)

    def audited(
        self, caller: Caller, action: str, *, sandbox_id: str = "", **details: Any
    ) -> AbstractAsyncContextManager[dict[str, Any]]:
        """Write down what becomes of an operation on a sandbox, before anybody is told; the body may add details."""
        return self._audit.operation(caller, action, with_message=True, sandbox_id=sandbox_id, **details)


def _may_see(caller: Caller, sandbox: Sandbox) -> bool:
    return sandbox.owner == caller.principal.owner or caller.principal.may(Scope.ADMIN)


def not_yours(sandbox_id: str) -> Forbidden:
    """Say what an admin may not do."""
    return Forbidden(f"sandbox {sandbox_id} is another's: with the scope admin you may see and end it, but not use it")


def _not_found(sandbox_id: str) -> NotFound:
    return NotFound(f"there is no sandbox {sandbox_id[:64]}")
