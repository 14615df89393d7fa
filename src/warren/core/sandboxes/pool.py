"""Sandboxes that wait for their owner, so that a create takes milliseconds.

They are in no store: after a crash, recovery destroys what the store does not know.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections import deque
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import anyio

from warren.core.sandboxes.egress_environment import build_common_env
from warren.core.sandboxes.transitions import explained
from warren.domain.errors import Conflict, Error, NotFound, SandboxLost, Unsupported
from warren.domain.values import Handle, SandboxSpec, Storage, new_id

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from warren.core.agent.client import AgentClient
    from warren.core.images.cache import ImageCache
    from warren.core.policy.policy import Policy
    from warren.core.sandboxes.connections import AgentConnections
    from warren.domain.values import Image, Limits
    from warren.engines.base import Engine

MAIN_KERNEL = "main"
QUIET_S = 0.1
"""Without a create, before the next sandbox is made for the pool: a burst has all processors to itself."""
_LOOK_S = 5.0
_BACK_OFF_S = (1.0, 5.0, 30.0)

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Pooled:
    """A running sandbox without an owner, and the link to it."""

    handle: Handle
    image: Image
    storage: Storage
    limits: Limits
    agent: AgentClient

    def suits(self, limits: Limits, env: Mapping[str, str]) -> bool:
        """Whether it is, as it stands, what is asked for."""
        return limits == self.limits and not env


class Pool:
    """Warm sandboxes of the pooled images, of both kinds of storage, with the operator's limits and environment."""

    def __init__(self, engine: Engine, connections: AgentConnections, images: ImageCache, policy: Policy) -> None:
        self._engine = engine
        self._connections = connections
        self._images = images
        self._policy = policy
        self._waiting: dict[tuple[str, Storage], deque[Pooled]] = {}
        """By digest of the image."""
        self._dead: list[Handle] = []
        self._can_resize = True
        self._creates = 0
        self._created_at = 0.0
        self._changed = anyio.Event()

    def acquire(self, image: Image, storage: Storage, limits: Limits) -> Pooled | None:
        """Take a sandbox that can be made to have these limits; None when there is none."""
        waiting = self._waiting.get((image.digest, storage))
        while waiting:
            if not self._fits(limits):
                return None
            pooled = waiting.popleft()
            self._changed.set()
            if pooled.agent.lost is None:
                return pooled
            self._dead.append(pooled.handle)
        return None

    def release(self, pooled: Pooled) -> None:
        """Put back a sandbox that nobody has done anything with."""
        self._waiting.setdefault((pooled.image.digest, pooled.storage), deque()).append(pooled)

    async def fit(self, pooled: Pooled, limits: Limits, env: Mapping[str, str]) -> bool:
        """Give a sandbox its owner's limits and environment; False when that cannot be done to this one."""
        if pooled.suits(limits, env):
            return True
        try:
            if limits != pooled.limits:
                await self._engine.resize(pooled.handle, limits)
            await pooled.agent.configure(env=env, limits=asdict(limits))
            if env:
                # It has the environment of its birth; the next is made when it is wanted.
                await pooled.agent.delete_kernel(MAIN_KERNEL)
        except (Unsupported, Conflict):
            self._can_resize = False
            return False
        except SandboxLost:
            return False
        return True

    @contextlib.contextmanager
    def creating(self) -> Iterator[None]:
        """Keep the pool from making sandboxes while somebody waits for theirs."""
        self._creates += 1
        try:
            yield
        finally:
            self._creates -= 1
            self._created_at = time.monotonic()

    def sizes(self) -> dict[str, int]:
        """Count what waits, by name of the image and storage."""
        counts: dict[str, int] = {}
        for (_, storage), waiting in self._waiting.items():
            for pooled in waiting:
                name = f"{pooled.image.name}/{storage}"
                counts[name] = counts.get(name, 0) + 1
        return counts

    async def run(self) -> None:
        """Keep the pool full, one sandbox at a time, whenever nobody else wants one."""
        failures = 0
        while self._policy.pool_size:
            self._changed = anyio.Event()
            try:
                images = await self._find_images()
                await self._sweep(images)
                if self._find_missing(images) is not None:
                    await self._wait_quiet()
                    # Again: whoever took one may have put it back.
                    if (missing := self._find_missing(images)) is not None:
                        await self._add(*missing)
                    failures = 0
                    continue
            except Exception as error:  # noqa: BLE001 - without a pool everything works, only slower
                _log.warning("pool.unfilled", extra={"reason": str(error)}, exc_info=not isinstance(error, Error))
                await anyio.sleep(_BACK_OFF_S[min(failures, len(_BACK_OFF_S) - 1)])
                failures += 1
                continue
            with anyio.move_on_after(_LOOK_S):
                await self._changed.wait()

    async def evict(self, name: str) -> None:
        """Destroy what waits of an image, once nobody is making a sandbox. Raises Error."""
        await self._wait_quiet()
        for waiting in self._waiting.values():
            gone = [pooled for pooled in waiting if pooled.image.name == name]
            for pooled in gone:
                waiting.remove(pooled)
                self._dead.append(pooled.handle)
        await self._bury()

    async def drain(self) -> None:
        """Destroy everything that waits."""
        with anyio.CancelScope(shield=True):
            for waiting in self._waiting.values():
                self._dead += [pooled.handle for pooled in waiting]
            self._waiting.clear()
            try:
                await self._bury()
            except Error as error:
                # The next start finds what is left.
                _log.warning("pool.undrained", extra={"reason": str(error)})

    def _fits(self, limits: Limits) -> bool:
        ours = self._policy.limits
        same_disk = (limits.disk_bytes, limits.disk_inodes) == (ours.disk_bytes, ours.disk_inodes)
        return limits == ours or (self._can_resize and same_disk)

    async def _find_images(self) -> list[Image]:
        found: list[Image] = []
        for name in self._policy.pool_images or (self._policy.image,):
            # One that is not built is not kept warm; whoever asks for it is told how to build it.
            with contextlib.suppress(NotFound):
                found.append(await self._images.get(name))
        return found

    def _find_missing(self, images: list[Image]) -> tuple[Image, Storage] | None:
        for image in images:
            for storage in (Storage.PERSISTENT, Storage.EPHEMERAL):
                if len(self._waiting.get((image.digest, storage), ())) < self._policy.pool_size:
                    return image, storage
        return None

    async def _wait_quiet(self) -> None:
        # Time has to pass, and nothing tells that it has.
        while self._creates or time.monotonic() - self._created_at < QUIET_S:  # noqa: ASYNC110 - see above
            await anyio.sleep(QUIET_S)

    async def _add(self, image: Image, storage: Storage) -> None:
        spec = SandboxSpec(
            id=new_id("sbx"),
            image=image,
            limits=self._policy.limits,
            storage=storage,
            common_env=build_common_env(self._engine, image),
        )
        handle = Handle(self._engine.name, spec.id)
        with anyio.CancelScope(shield=True):
            try:
                with explained():
                    await self._engine.create(spec)
                agent = await self._connections.get(handle)
                # The first cell finds its kernel up; that takes longer than all else that a claim waits for.
                await agent.create_kernel(MAIN_KERNEL)
            except Error:
                self._dead.append(handle)
                raise
        self.release(Pooled(handle, image, storage, spec.limits, agent))

    async def _sweep(self, images: list[Image]) -> None:
        """Take out what died, and what was made from a build that is not current any more."""
        current = {image.digest for image in images}
        for (digest, _), waiting in self._waiting.items():
            stale = [pooled for pooled in waiting if digest not in current or pooled.agent.lost is not None]
            for pooled in stale:
                waiting.remove(pooled)
                self._dead.append(pooled.handle)
        await self._bury()

    async def _bury(self) -> None:
        while self._dead:
            handle = self._dead.pop()
            try:
                await self._connections.drop(handle.sandbox_id)
                await self._engine.destroy(handle)
            except BaseException:
                self._dead.append(handle)
                raise
