"""From one status to the next: each step is written down, done by the engine, and written down again.

Everything here, but `lost`, wants the lock of the place it changes, and a scope that is shielded from cancellation: a
step that was begun is finished. What fails in the middle keeps its -ing status, and `settle` finishes it later.
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
from warren.core.sandboxes.live import LiveSandbox
from warren.core.sandboxes.pending_deletes import PendingDeletes
from warren.domain.errors import Conflict, Error, SandboxLost, StartFailed, StoreError
from warren.domain.gpus import GpuRequest
from warren.domain.lifecycle import Status, check_next
from warren.domain.values import Image, SandboxSpec, Storage

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from warren.core.agent.client import AgentClient
    from warren.core.audit.log import Audit
    from warren.core.images.cache import ImageCache
    from warren.core.policy.policy import Policy
    from warren.core.sandboxes.connections import AgentConnections
    from warren.domain.records import Sandbox
    from warren.engines.base import Engine
    from warren.stores.base import Store

_log = logging.getLogger(__name__)

_FULL = "the disk is full where the sandboxes are: make room, or delete some"


async def _nothing(_sandbox_id: str) -> None:
    """Have nothing to finish."""


class SandboxTransitions:
    """The places of this process, and the steps of their lives."""

    def __init__(
        self,
        *,
        engine: Engine,
        store: Store,
        connections: AgentConnections,
        images: ImageCache,
        audit: Audit,
        policy: Policy,
    ) -> None:
        self.live_sandboxes: dict[str, LiveSandbox] = {}
        self.pending_deletes = PendingDeletes()
        self.before_end: Callable[[str], Awaitable[None]] = _nothing
        """Awaited before a sandbox is stopped or destroyed: what is still to be written about it is written then."""
        self.on_forget: list[Callable[[str], None]] = []
        """Called with the id of each sandbox that is gone."""
        self._engine = engine
        self._store = store
        self._connections = connections
        self._images = images
        self._audit = audit
        self._policy = policy
        connections.on_lost = self.lost

    async def find(self, sandbox_id: str) -> LiveSandbox | None:
        """Return the place of a sandbox; also of one that only the store knows of."""
        live = self.live_sandboxes.get(sandbox_id)
        if live is not None:
            return live
        sandbox = await self._store.get(sandbox_id)
        return None if sandbox is None else self.live_sandboxes.setdefault(sandbox_id, LiveSandbox(sandbox))

    async def become(self, live: LiveSandbox, then: Status, **fields: Any) -> None:
        """Write down the next status, if the store still has the one we know. Raises Conflict."""
        was = live.sandbox.status
        check_next(was, then)
        await self.write(live, was, status=then, changed_at=time.time(), **fields)

    async def write(self, live: LiveSandbox, was: Status, *, check_quota: bool = False, **fields: Any) -> None:
        """Replace the record, if the store still has the status we know. Raises Conflict or QuotaExceeded."""
        sandbox = dataclasses.replace(live.sandbox, active_at=live.active_at, **fields)
        ceilings = self._policy.ceilings_of(sandbox.owner.tenant) if check_quota else {}
        if not await self._store.swap(sandbox, was=was, **ceilings):
            await self._look_again(live)
            raise Conflict(f"sandbox {live.id} was changed by somebody else in the same moment: look at it again")
        live.sandbox = sandbox

    async def start(self, live: LiveSandbox) -> None:
        """Run a stopped sandbox again, from the image it was made from, or from the build that replaced it."""
        sandbox = live.sandbox
        image = await self._images.get_build(sandbox.image, sandbox.image_digest)
        reason = None
        if image.digest != sandbox.image_digest:
            reason = f"the build of image {image.name} that it was made from is gone: it runs on the current one"
        await self.become(live, Status.STARTING, check_quota=True, reason=None, image_digest=image.digest)
        try:
            with explained():
                await self._engine.start(live.handle, build_spec(self._engine, live.sandbox, image))
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
        # Where the disk is full, this is what makes room. What was not written about it goes with it, and a record of
        # what is no longer there is removed by the reaper, or by recovery.
        with contextlib.suppress(StoreError):
            await self.before_end(live.id)
        try:
            await self.become(live, Status.DESTROYING)
        except StoreError:
            live.sandbox = dataclasses.replace(live.sandbox, status=Status.DESTROYING)
        await self._finish_destroy(live)

    async def settle(self, live: LiveSandbox) -> None:
        """Finish what was begun and went wrong. Raises what goes wrong again."""
        if live.is_gone:
            return
        if live.sandbox.status in {Status.STOPPING, Status.STARTING}:
            await self._finish_stop(live, live.sandbox.reason)
        elif live.sandbox.status is Status.DESTROYING:
            await self._finish_destroy(live)
        elif live.sandbox.status is Status.CREATING:
            await self.destroy(live)

    async def have_running(self, live: LiveSandbox) -> None:
        """Start a sandbox that is stopped, and reach one that should be running. Raises SandboxLost."""
        if live.is_gone:
            return
        if live.sandbox.status is Status.RUNNING and not live.is_ready:
            await self.reach(live)
        if live.sandbox.status is Status.STOPPED:
            await self.start(live)
        # Whoever asked for it is about to use it: the reaper must not find it idle since before that.
        live.touch()

    async def reach(self, live: LiveSandbox) -> None:
        """Connect again to a sandbox that should be running; one that cannot be reached is stopped or destroyed.

        One that broke its protocol is not connected to again. Raises SandboxLost when it was destroyed.
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
        """Come to terms with a running sandbox that is lost: what can be kept is its workspace.

        Raises SandboxLost when that is gone too.
        """
        self._note_lost(live, reason)
        if live.sandbox.storage is Storage.PERSISTENT:
            await self.stop(live, reason)
        else:
            await self.destroy(live)
        if live.is_gone:
            raise SandboxLost(f"sandbox {live.id} is gone, with its workspace: {reason}")

    async def lost(self, sandbox_id: str, agent: AgentClient) -> None:
        """Find out what became of a sandbox whose link broke without anybody having asked it for anything."""
        live = self.live_sandboxes.get(sandbox_id)
        if live is None:
            return
        async with live.held():
            if live.lost_agent is agent and live.sandbox.status is Status.RUNNING:
                try:
                    await self.reach(live)
                except SandboxLost:
                    pass  # It is gone, and the audit record says so.
                except Exception:  # noqa: BLE001 - it runs beside the links of all other sandboxes
                    _log.warning("sandbox.lost", extra={"sandbox_id": sandbox_id}, exc_info=True)

    async def write_off(self, live: LiveSandbox, reason: str) -> None:
        """Remove the record of a sandbox of which nothing is left."""
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
        """Take a place off the table; whoever waits for its lock finds it gone."""
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
    """Turn what the operating system refuses an engine into an error with a sentence."""
    try:
        yield
    except OSError as error:
        is_full = error.errno in {errno.ENOSPC, errno.EDQUOT}
        why = f"this host could not do what the sandbox needs: {error.strerror or error}"
        raise StartFailed(_FULL if is_full else why) from error
    except StartFailed as error:
        # An engine in another process has only words for it, and paths of the host in them.
        if os.strerror(errno.ENOSPC) in str(error):
            raise StartFailed(_FULL) from error
        raise


def build_spec(engine: Engine, sandbox: Sandbox, image: Image, *, single_use: bool = False) -> SandboxSpec:
    """Build what an engine needs to know of a sandbox."""
    return SandboxSpec(
        id=sandbox.id,
        image=image,
        limits=sandbox.limits,
        storage=sandbox.storage,
        common_env=build_common_env(engine, image),
        env=sandbox.env,
        single_use=single_use,
        gpus=GpuRequest(sandbox.gpus or 0),
    )
