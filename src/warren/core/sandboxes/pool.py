"""The pool of sandboxes for creates: a create that finds one ready takes milliseconds."""

from __future__ import annotations

import contextlib
import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import anyio

from warren.core.sandboxes.environment import build_common_env
from warren.core.sandboxes.transitions import explained
from warren.core.sandboxes.warm_pool import WarmPool, WarmSandbox
from warren.domain.errors import Conflict, Error, SandboxLost, Unsupported
from warren.domain.values import Handle, SandboxSpec, Storage, new_id

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from warren.core.images.cache import ImageCache
    from warren.core.policy.policy import Policy
    from warren.core.sandboxes.connections import AgentConnections
    from warren.domain.values import Image, Limits
    from warren.engines.base import Engine
    from warren.stores.base import Store

MAIN_KERNEL = "main"
QUIET_S = 0.1
"""Without a create, before the pool makes its next sandbox: a burst of creates has all processors to itself."""


@dataclass(frozen=True, slots=True)
class PooledSandbox(WarmSandbox):
    """A ready sandbox with the operator's limits."""

    limits: Limits

    def suits(self, limits: Limits, env: Mapping[str, str]) -> bool:
        """Whether it needs no change for these limits and this environment."""
        return limits == self.limits and not env


class SandboxPool(WarmPool[PooledSandbox]):
    """Ready sandboxes of the pooled images, of both kinds of storage, with the operator's limits and environment."""

    name = "pool"
    storages = (Storage.PERSISTENT, Storage.EPHEMERAL)

    def __init__(
        self, engine: Engine, store: Store, connections: AgentConnections, images: ImageCache, policy: Policy
    ) -> None:
        super().__init__(engine, store, connections, images, policy.pool_size)
        self._policy = policy
        self._can_resize = True
        self._creates = 0
        self._created_at = 0.0

    async def acquire(self, image: Image, storage: Storage, limits: Limits) -> PooledSandbox | None:
        """Take a sandbox that has these limits or can be given them; None when there is none."""
        return await self._take(image, storage) if self._fits(limits) else None

    async def fit(self, pooled: PooledSandbox, limits: Limits, env: Mapping[str, str]) -> bool:
        """Give a sandbox its owner's limits and environment; False when this one cannot have them."""
        if pooled.suits(limits, env):
            return True
        try:
            if limits != pooled.limits:
                await self._engine.resize(pooled.handle, limits)
            await pooled.agent.configure(env=env, limits=asdict(limits))
            if env:
                # A kernel keeps the environment that it was started with; the next cell starts another.
                await pooled.agent.delete_kernel(MAIN_KERNEL)
        except (Unsupported, Conflict):
            self._can_resize = False
            return False
        except SandboxLost:
            return False
        return True

    @contextlib.contextmanager
    def creating(self) -> Iterator[None]:
        """Keep the pool from making sandboxes while a caller waits for a create."""
        self._creates += 1
        try:
            yield
        finally:
            self._creates -= 1
            self._created_at = time.monotonic()

    async def run(self) -> None:
        """Keep the pool full, one sandbox at a time, between creates."""
        if self._size:
            await super().run()

    async def evict(self, name: str) -> None:
        """Destroy the ready sandboxes of an image, once no create is under way. Raises Error."""
        await self._wait_quiet()
        for ready in self._ready.values():
            for pooled in [pooled for pooled in ready if pooled.image.name == name]:
                ready.remove(pooled)
                await self._retire(pooled)
        await self._bury()

    def _fits(self, limits: Limits) -> bool:
        ours = self._policy.limits
        same_disk = (limits.disk_bytes, limits.disk_inodes) == (ours.disk_bytes, ours.disk_inodes)
        return limits == ours or (self._can_resize and same_disk)

    def _wanted(self) -> Iterable[str]:
        return self._policy.pool_images or (self._policy.image,)

    async def _wait_quiet(self) -> None:
        # Time has to pass, and no event says that it has.
        while self._creates or time.monotonic() - self._created_at < QUIET_S:  # noqa: ASYNC110 - see above
            await anyio.sleep(QUIET_S)

    async def _make(self, image: Image, storage: Storage) -> PooledSandbox:
        spec = SandboxSpec(
            id=new_id("sbx"),
            image=image,
            limits=self._policy.limits,
            storage=storage,
            common_env=build_common_env(self._engine, image),
            store_id=self._store.identity,
        )
        handle = Handle(self._engine.name, spec.id)
        with anyio.CancelScope(shield=True):
            try:
                with explained():
                    await self._engine.create(spec)
                agent = await self._connections.get(handle)
                # Starting the kernel takes longer than the rest of a claim: the first cell finds it ready.
                await agent.create_kernel(MAIN_KERNEL)
            except Error:
                self._dead.append(handle)
                raise
        return PooledSandbox(handle, image, storage, agent, spec.limits)
