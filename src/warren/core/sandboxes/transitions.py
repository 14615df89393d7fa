"""Sandbox transitions: each step is stored, done by the engine, and stored again.

1. Every method but `lost` needs the lock of its sandbox and a scope that is shielded from cancellation: a step that was
   begun is finished.
2. A step that fails half-way keeps its -ing status, and `settle` finishes it later.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import logging
import os
import time
from typing import TYPE_CHECKING, Any

from warren.core.sandboxes.environment import build_common_env
from warren.core.sandboxes.live import LiveSandbox, PendingDeletes
from warren.domain.errors import Conflict, Error, SandboxLost, StartFailed, StoreError
from warren.domain.gpus import GpuRequest
from warren.domain.lifecycle import Status, check_next
from warren.domain.values import Image, SandboxSpec, Storage
from warren.stores.base import NO_CEILINGS

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from warren.core.agent.client import AgentClient
    from warren.core.audit.log import Audit
    from warren.core.images.cache import ImageCache
    from warren.core.policy.free_space import FreeSpace
    from warren.core.policy.policy import Policy
    from warren.core.sandboxes.connections import AgentConnections
    from warren.domain.records import Sandbox
    from warren.engines.base import Engine
    from warren.stores.base import Store

_log = logging.getLogger(__name__)

_FULL = "the disk is full where the sandboxes are: make room, or delete some"


async def _nothing(_sandbox_id: str) -> None:
    """Do nothing."""


class SandboxTransitions:
    """The live sandboxes of this process, and the steps between their statuses."""

    def __init__(
        self,
        *,
        engine: Engine,
        store: Store,
        connections: AgentConnections,
        images: ImageCache,
        audit: Audit,
        policy: Policy,
        space: FreeSpace,
    ) -> None:
        self.live_sandboxes: dict[str, LiveSandbox] = {}
        self.pending_deletes = PendingDeletes()
        self.before_end: Callable[[str], Awaitable[None]] = _nothing
        """Awaited before a sandbox is stopped or destroyed: it ends and records the executions."""
        self.on_forget: list[Callable[[str], None]] = []
        """Called with the id of each sandbox that is gone."""
        self._engine = engine
        self._store = store
        self._connections = connections
        self._images = images
        self._audit = audit
        self._policy = policy
        self._space = space
        connections.on_lost = self.lost

    async def find(self, sandbox_id: str) -> LiveSandbox | None:
        """Return a live sandbox, made from its record if need be; None when there is no record.

        That of another engine is not put on the table, where the reaper would end it.
        """
        live = self.live_sandboxes.get(sandbox_id)
        if live is not None:
            return live
        sandbox = await self._store.get(sandbox_id)
        if sandbox is None:
            return None
        live = LiveSandbox(sandbox)
        return self.live_sandboxes.setdefault(sandbox_id, live) if self.is_ours(sandbox) else live

    def is_ours(self, sandbox: Sandbox) -> bool:
        """Whether our engine has this sandbox, if any has. Records of earlier versions name no reach."""
        return sandbox.engine == self._engine.name and sandbox.reach in {"", self._engine.reach}

    def check_ours(self, sandbox: Sandbox) -> None:
        """Raise Conflict for a sandbox that another engine has: this service can neither use nor end it."""
        if self.is_ours(sandbox):
            return
        theirs, ours = sandbox.engine, self._engine.name
        if theirs == ours:
            theirs, ours = f"{theirs}, reach {sandbox.reach}", f"{ours}, reach {self._engine.reach}"
        raise Conflict(
            f"sandbox {sandbox.id} belongs to another engine ({theirs}), and this service runs {ours}: "
            "it can be used and deleted by a service that runs its engine"
        )

    async def become(self, live: LiveSandbox, then: Status, **fields: Any) -> None:
        """Store the next status, if the store still has the one we know. Raises Conflict."""
        was = live.sandbox.status
        check_next(was, then)
        await self.write(live, was, status=then, changed_at=time.time(), **fields)

    async def write(self, live: LiveSandbox, was: Status, *, check_quota: bool = False, **fields: Any) -> None:
        """Replace the record, if the store still has the status we know. Raises Conflict or QuotaExceeded."""
        sandbox = dataclasses.replace(live.sandbox, active_at=live.active_at, **fields)
        ceilings = self._policy.ceilings_of(sandbox.owner.tenant) if check_quota else NO_CEILINGS
        if not await self._store.swap(sandbox, ceilings, was=was):
            await self._look_again(live)
            raise Conflict(f"sandbox {live.id} was changed by another request in the same moment: look at it again")
        live.sandbox = sandbox

    async def start(self, live: LiveSandbox) -> None:
        """Run a stopped sandbox again, from the image it was made from, or from the build that replaced it."""
        self._space.check()
        sandbox = live.sandbox
        image = await self._images.get_build(sandbox.image, sandbox.image_digest)
        reason = None
        if image.digest != sandbox.image_digest:
            reason = f"the build of image {image.name} that it was made from is gone: it runs on the current one"
        await self.become(live, Status.STARTING, check_quota=True, reason=None, image_digest=image.digest)
        try:
            with explained():
                await self._engine.start(live.handle, build_spec(self._engine, self._store, live.sandbox, image))
            live.agent = await self._connections.get(live.handle)
        except Error as error:
            await self._finish_stop(live, f"it could not be started: {error}")
            raise
        await self.become(live, Status.RUNNING, reason=reason)

    async def stop(self, live: LiveSandbox, reason: str | None = None) -> None:
        """End its processes; the workspace stays. Only for persistent ones: others are destroyed."""
        await self.before_end(live.id)
        await self.become(live, Status.STOPPING, reason=reason)
        await self._finish_stop(live, reason)

    async def destroy(self, live: LiveSandbox) -> None:
        """Remove it, workspace, record and all."""
        # A full disk must not prevent it: this makes room. Unwritten executions go with the sandbox, and the reaper or
        # recovery removes a record that is left.
        with contextlib.suppress(StoreError):
            await self.before_end(live.id)
        try:
            await self.become(live, Status.DESTROYING)
        except StoreError:
            live.sandbox = dataclasses.replace(live.sandbox, status=Status.DESTROYING)
        await self._finish_destroy(live)

    async def settle(self, live: LiveSandbox) -> None:
        """Finish a step that failed half-way. Raises the error of a new failure."""
        if live.is_gone:
            return
        if live.sandbox.status in {Status.STOPPING, Status.STARTING}:
            await self._finish_stop(live, live.sandbox.reason)
        elif live.sandbox.status is Status.DESTROYING:
            await self._finish_destroy(live)
        elif live.sandbox.status is Status.CREATING:
            await self.destroy(live)

    async def have_running(self, live: LiveSandbox) -> None:
        """Start a stopped sandbox, and connect to a running one. Raises SandboxLost."""
        if live.is_gone:
            return
        if live.sandbox.status is Status.RUNNING and not live.is_ready:
            await self.reach(live)
        if live.sandbox.status is Status.STOPPED:
            await self.start(live)
        # It is about to be used: the reaper must not count its idle time from before.
        live.touch()

    async def reach(self, live: LiveSandbox) -> None:
        """Reconnect to a sandbox that should be running; one that cannot be reached is stopped or destroyed.

        One that broke its protocol is not reconnected. Raises SandboxLost when it was destroyed.
        """
        agent = live.lost_agent
        if agent is not None and agent.broke_protocol:
            await self.lose(live, str(agent.lost))
            return
        try:
            live.agent = await self._connections.get(live.handle)
        except SandboxLost as error:
            await self.lose(live, str(error))

    async def lose(self, live: LiveSandbox, reason: str) -> None:
        """Stop a lost sandbox, or destroy it if its workspace cannot be kept. Raises SandboxLost when it is gone."""
        self._note_lost(live, reason)
        live.lose_kernels()
        if live.sandbox.storage is Storage.PERSISTENT:
            await self.stop(live, reason)
        else:
            await self.destroy(live)
        if live.is_gone:
            raise SandboxLost(f"sandbox {live.id} is gone, with its workspace: {reason}")

    async def lost(self, sandbox_id: str, agent: AgentClient) -> None:
        """Reconnect a sandbox whose connection broke while no request used it."""
        live = self.live_sandboxes.get(sandbox_id)
        if live is None:
            return
        async with live.held():
            if live.lost_agent is agent and live.sandbox.status is Status.RUNNING:
                try:
                    await self.reach(live)
                except SandboxLost:
                    pass  # Destroyed, and audited.
                except Exception:  # noqa: BLE001 - it runs beside the connections of all other sandboxes
                    _log.warning("sandbox.reconnect_failed", extra={"sandbox_id": sandbox_id}, exc_info=True)

    async def write_off(self, live: LiveSandbox, reason: str) -> None:
        """Remove the record of a sandbox that the engine no longer has."""
        self._note_lost(live, reason)
        await self.destroy(live)

    async def _finish_stop(self, live: LiveSandbox, reason: str | None) -> None:
        live.agent = None
        try:
            with explained():
                note = await self._engine.stop(live.handle)
        except SandboxLost as error:
            self._note_lost(live, f"its workspace is gone: {error}")
            await self.become(live, Status.DESTROYING)
            await self._finish_destroy(live)
            return
        await self._connections.drop(live.id)
        await self.become(live, Status.STOPPED, reason=" ".join(filter(None, (reason, note))) or None)

    async def _finish_destroy(self, live: LiveSandbox) -> None:
        live.agent = None
        with explained():
            await self._engine.destroy(live.handle)
        await self._connections.drop(live.id)
        await self._store.remove(live.id)
        self.forget(live)

    def forget(self, live: LiveSandbox) -> None:
        """Take a sandbox off the table; a task that waits for its lock finds `is_gone`."""
        live.is_gone = True
        if self.live_sandboxes.get(live.id) is live:
            del self.live_sandboxes[live.id]
        for forget in self.on_forget:
            forget(live.id)

    async def _look_again(self, live: LiveSandbox) -> None:
        current = await self._store.get(live.id)
        if current is None:
            self.forget(live)
        else:
            live.sandbox = current

    def _note_lost(self, live: LiveSandbox, reason: str) -> None:
        self._audit.note(None, "sandbox.lost", outcome=SandboxLost.code, sandbox_id=live.id, reason=reason)


@contextlib.contextmanager
def explained() -> Iterator[None]:
    """Turn an OSError of an engine into a StartFailed that says what to do."""
    try:
        yield
    except OSError as error:
        is_full = error.errno in {errno.ENOSPC, errno.EDQUOT}
        why = f"this host could not do what the sandbox needs: {error.strerror or error}"
        raise StartFailed(_FULL if is_full else why) from error
    except StartFailed as error:
        # An engine in another process passes on only text, which names paths of the host.
        if os.strerror(errno.ENOSPC) in str(error):
            raise StartFailed(_FULL) from error
        raise


def build_spec(
    engine: Engine, store: Store, sandbox: Sandbox, image: Image, *, single_use: bool = False
) -> SandboxSpec:
    """Build the specification of a sandbox for its engine."""
    return SandboxSpec(
        id=sandbox.id,
        image=image,
        limits=sandbox.limits,
        storage=sandbox.storage,
        common_env=build_common_env(engine, image),
        env=sandbox.env,
        single_use=single_use,
        gpus=GpuRequest(sandbox.gpus or 0),
        store_id=store.identity,
    )
