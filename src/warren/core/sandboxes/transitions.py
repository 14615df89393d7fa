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

from warren.core.sandboxes.egress_environment import build_common_env
from warren.core.sandboxes.live import Place
from warren.core.sandboxes.pending_deletes import Leaving
from warren.domain.errors import Conflict, Error, SandboxLost, StartFailed, StoreError
from warren.domain.gpus import GpuRequest
from warren.domain.lifecycle import Status, check_next
from warren.domain.values import Image, SandboxSpec, Storage

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from warren.core.agent.client import Link
    from warren.core.audit.log import Audit
    from warren.core.images.cache import ImageCache
    from warren.core.policy.policy import Policy
    from warren.core.sandboxes.connections import Links
    from warren.domain.records import Sandbox
    from warren.engines.base import Engine
    from warren.stores.base import Store

_log = logging.getLogger(__name__)

_FULL = "the disk is full where the sandboxes are: make room, or delete some"


async def _nothing(_sandbox_id: str) -> None:
    """Have nothing to finish."""


class Lives:
    """The places of this process, and the steps of their lives."""

    def __init__(
        self, *, engine: Engine, store: Store, links: Links, images: ImageCache, audit: Audit, policy: Policy
    ) -> None:
        self.places: dict[str, Place] = {}
        self.leaving = Leaving()
        self.before_end: Callable[[str], Awaitable[None]] = _nothing
        """Awaited before a sandbox is stopped or destroyed: what is still to be written about it is written then."""
        self.on_forget: list[Callable[[str], None]] = []
        """Called with the id of each sandbox that is gone."""
        self._engine = engine
        self._store = store
        self._links = links
        self._images = images
        self._audit = audit
        self._policy = policy
        links.on_lost = self.lost

    async def find(self, sandbox_id: str) -> Place | None:
        """Return the place of a sandbox; also of one that only the store knows of."""
        place = self.places.get(sandbox_id)
        if place is not None:
            return place
        sandbox = await self._store.get(sandbox_id)
        return None if sandbox is None else self.places.setdefault(sandbox_id, Place(sandbox))

    async def become(self, place: Place, then: Status, **fields: Any) -> None:
        """Write down the next status, if the store still has the one we know. Raises Conflict."""
        was = place.sandbox.status
        check_next(was, then)
        await self.write(place, was, status=then, changed_at=time.time(), **fields)

    async def write(self, place: Place, was: Status, *, check_quota: bool = False, **fields: Any) -> None:
        """Replace the record, if the store still has the status we know. Raises Conflict or QuotaExceeded."""
        sandbox = dataclasses.replace(place.sandbox, active_at=place.active_at, **fields)
        ceilings = self._policy.ceilings_of(sandbox.owner.tenant) if check_quota else {}
        if not await self._store.swap(sandbox, was=was, **ceilings):
            await self._look_again(place)
            raise Conflict(f"sandbox {place.id} was changed by somebody else in the same moment: look at it again")
        place.sandbox = sandbox

    async def start(self, place: Place) -> None:
        """Run a stopped sandbox again, from the image it was made from, or from the build that replaced it."""
        sandbox = place.sandbox
        image = await self._images.get_build(sandbox.image, sandbox.image_digest)
        reason = None
        if image.digest != sandbox.image_digest:
            reason = f"the build of image {image.name} that it was made from is gone: it runs on the current one"
        await self.become(place, Status.STARTING, check_quota=True, reason=None, image_digest=image.digest)
        try:
            with explained():
                await self._engine.start(place.handle, build_spec(self._engine, place.sandbox, image))
            place.link = await self._links.get(place.handle)
        except Error as error:
            await self._finish_stop(place, f"it could not be started: {error}")
            raise
        await self.become(place, Status.RUNNING, reason=reason)

    async def stop(self, place: Place, reason: str | None = None) -> None:
        """End its processes; the workspace stays. Only for persistent ones: others are destroyed."""
        await self.before_end(place.id)
        await self.become(place, Status.STOPPING, reason=reason)
        await self._finish_stop(place, reason)

    async def destroy(self, place: Place) -> None:
        """Remove it, workspace, record and all."""
        # Where the disk is full, this is what makes room. What was not written about it goes with it, and a record of
        # what is no longer there is removed by the reaper, or by recovery.
        with contextlib.suppress(StoreError):
            await self.before_end(place.id)
        try:
            await self.become(place, Status.DESTROYING)
        except StoreError:
            place.sandbox = dataclasses.replace(place.sandbox, status=Status.DESTROYING)
        await self._finish_destroy(place)

    async def settle(self, place: Place) -> None:
        """Finish what was begun and went wrong. Raises what goes wrong again."""
        if place.is_gone:
            return
        if place.sandbox.status in {Status.STOPPING, Status.STARTING}:
            await self._finish_stop(place, place.sandbox.reason)
        elif place.sandbox.status is Status.DESTROYING:
            await self._finish_destroy(place)
        elif place.sandbox.status is Status.CREATING:
            await self.destroy(place)

    async def have_running(self, place: Place) -> None:
        """Start a sandbox that is stopped, and reach one that should be running. Raises SandboxLost."""
        if place.is_gone:
            return
        if place.sandbox.status is Status.RUNNING and not place.is_ready:
            await self.reach(place)
        if place.sandbox.status is Status.STOPPED:
            await self.start(place)
        # Whoever asked for it is about to use it: the reaper must not find it idle since before that.
        place.touch()

    async def reach(self, place: Place) -> None:
        """Connect again to a sandbox that should be running; one that cannot be reached is stopped or destroyed.

        One that broke its protocol is not connected to again. Raises SandboxLost when it was destroyed.
        """
        link = place.lost_link
        if link is not None and link.broke_protocol:
            await self.lose(place, str(link.lost))
            return
        try:
            place.link = await self._links.get(place.handle)
        except SandboxLost as error:
            await self.lose(place, str(error))

    async def lose(self, place: Place, reason: str) -> None:
        """Come to terms with a running sandbox that is lost: what can be kept is its workspace.

        Raises SandboxLost when that is gone too.
        """
        self._note_lost(place, reason)
        if place.sandbox.storage is Storage.PERSISTENT:
            await self.stop(place, reason)
        else:
            await self.destroy(place)
        if place.is_gone:
            raise SandboxLost(f"sandbox {place.id} is gone, with its workspace: {reason}")

    async def lost(self, sandbox_id: str, link: Link) -> None:
        """Find out what became of a sandbox whose link broke without anybody having asked it for anything."""
        place = self.places.get(sandbox_id)
        if place is None:
            return
        async with place.held():
            if place.lost_link is link and place.sandbox.status is Status.RUNNING:
                try:
                    await self.reach(place)
                except SandboxLost:
                    pass  # It is gone, and the audit record says so.
                except Exception:  # noqa: BLE001 - it runs beside the links of all other sandboxes
                    _log.warning("sandbox.lost", extra={"sandbox_id": sandbox_id}, exc_info=True)

    async def write_off(self, place: Place, reason: str) -> None:
        """Remove the record of a sandbox of which nothing is left."""
        self._note_lost(place, reason)
        await self.destroy(place)

    async def _finish_stop(self, place: Place, reason: str | None) -> None:
        place.link = None
        try:
            with explained():
                note = await self._engine.stop(place.handle)
        except SandboxLost as error:
            self._note_lost(place, f"its workspace is gone: {error}")
            await self.become(place, Status.DESTROYING)
            await self._finish_destroy(place)
            return
        await self._links.drop(place.id)
        await self.become(place, Status.STOPPED, reason=" ".join(filter(None, (reason, note))) or None)

    async def _finish_destroy(self, place: Place) -> None:
        place.link = None
        with explained():
            await self._engine.destroy(place.handle)
        await self._links.drop(place.id)
        await self._store.remove(place.id)
        self.forget(place)

    def forget(self, place: Place) -> None:
        """Take a place off the table; whoever waits for its lock finds it gone."""
        place.is_gone = True
        if self.places.get(place.id) is place:
            del self.places[place.id]
        for forget in self.on_forget:
            forget(place.id)

    async def _look_again(self, place: Place) -> None:
        current = await self._store.get(place.id)
        if current is None:
            self.forget(place)
        else:
            place.sandbox = current

    def _note_lost(self, place: Place, reason: str) -> None:
        self._audit.note(None, "sandbox.lost", outcome=SandboxLost.code, sandbox_id=place.id, reason=reason)


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
