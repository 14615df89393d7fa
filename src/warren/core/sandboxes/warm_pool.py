"""Warm pool: sandboxes that are made before they are asked for.

1. A pooled sandbox is in no store, and no client can name it. It has the identity of the store: after a crash,
   recovery destroys what the store lacks.
2. The pool makes one sandbox at a time. A failed refill is retried after 1, 5 and then every 30 seconds.
3. A sandbox that cannot be destroyed goes to the end of the line and is tried again: it delays no other.
"""

from __future__ import annotations

import abc
import contextlib
import logging
import time
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

import anyio

from warren.domain.errors import Error, NotFound

if TYPE_CHECKING:
    from collections.abc import Iterable

    from warren.core.agent.client import AgentClient
    from warren.core.images.cache import ImageCache
    from warren.core.sandboxes.connections import AgentConnections
    from warren.domain.values import Handle, Image, Storage
    from warren.engines.base import Engine
    from warren.stores.base import Store

LOOK_S = 5.0
BACK_OFF_S = (1.0, 5.0, 30.0)

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class WarmSandbox:
    """A running sandbox without an owner, and the connection to its agent."""

    handle: Handle
    image: Image
    storage: Storage
    agent: AgentClient

    async def close(self) -> None:
        """Release what it holds besides the connection."""


T = TypeVar("T", bound=WarmSandbox)


class WarmPool(abc.ABC, Generic[T]):
    """Keeps `size` sandboxes ready of each wanted image and storage; destroys the dead, the outdated and the unwanted.

    `run` refills until it is cancelled; `drain` destroys what is left.
    """

    name: str
    """The prefix of its log events."""
    storages: tuple[Storage, ...]

    def __init__(
        self, engine: Engine, store: Store, connections: AgentConnections, images: ImageCache, size: int
    ) -> None:
        self._engine = engine
        self._store = store
        self._connections = connections
        self._images = images
        self._size = size
        self._ready: dict[tuple[str, Storage], deque[T]] = {}
        """By digest of the image."""
        self._dead: deque[Handle] = deque()
        self._changed = anyio.Event()

    @abc.abstractmethod
    def _wanted(self) -> Iterable[str]:
        """Name the images of which sandboxes are kept ready now."""

    @abc.abstractmethod
    async def _make(self, image: Image, storage: Storage) -> T:
        """Make one sandbox. On failure its handle goes to `_dead`."""

    async def _wait_quiet(self) -> None:
        """Wait for a good moment to make the next one."""

    def sizes(self) -> dict[str, int]:
        """Count the ready sandboxes, by image name and storage."""
        counts: dict[str, int] = {}
        for (_, storage), ready in self._ready.items():
            for one in ready:
                name = f"{one.image.name}/{storage}"
                counts[name] = counts.get(name, 0) + 1
        return counts

    def release(self, one: T) -> None:
        """Put a sandbox into the pool: a new one, or one that was taken and not used."""
        self._ready.setdefault((one.image.digest, one.storage), deque()).append(one)

    async def run(self) -> None:
        """Keep the pool full, one sandbox at a time."""
        failures, retry_at = 0, 0.0
        while True:
            self._changed = anyio.Event()
            try:
                images = await self._find_images()
                await self._sweep({image.digest for image in images})
                if time.monotonic() >= retry_at and await self._refill(images):
                    failures = 0
                    continue
            except Exception as error:  # noqa: BLE001 - without a pool everything works, only slower
                reason = {"reason": str(error)}
                _log.warning(f"{self.name}.refill_failed", extra=reason, exc_info=not isinstance(error, Error))
                retry_at = time.monotonic() + BACK_OFF_S[min(failures, len(BACK_OFF_S) - 1)]
                failures += 1
            wait_s = retry_at - time.monotonic()
            with anyio.move_on_after(wait_s if wait_s > 0 else LOOK_S):
                await self._changed.wait()

    async def drain(self) -> None:
        """Destroy every ready sandbox."""
        with anyio.CancelScope(shield=True):
            for ready in self._ready.values():
                while ready:
                    await self._retire(ready.popleft())
            try:
                await self._bury()
            except Error as error:
                # The next start destroys the rest.
                _log.warning(f"{self.name}.drain_failed", extra={"reason": str(error)})

    async def _take(self, image: Image, storage: Storage) -> T | None:
        """Take a ready sandbox of this build; None when there is none."""
        ready = self._ready.get((image.digest, storage))
        while ready:
            one = ready.popleft()
            self._changed.set()
            if one.agent.lost is None:
                return one
            await self._retire(one)
        return None

    async def _retire(self, one: T) -> None:
        """Give a sandbox up; `run` destroys it."""
        await one.close()
        self._dead.append(one.handle)
        self._changed.set()

    async def _find_images(self) -> list[Image]:
        found: list[Image] = []
        for name in self._wanted():
            # An image that is not built is not kept warm; a create of it fails and says how to build it.
            with contextlib.suppress(NotFound):
                found.append(await self._images.get(name))
        return found

    async def _refill(self, images: list[Image]) -> bool:
        """Make one sandbox if one is missing; False when the pool is full."""
        if self._find_missing(images) is None:
            return False
        await self._wait_quiet()
        # Looked for again: meanwhile one may have been put back.
        if (missing := self._find_missing(images)) is not None:
            self.release(await self._make(*missing))
        return True

    def _find_missing(self, images: list[Image]) -> tuple[Image, Storage] | None:
        for image in images:
            for storage in self.storages:
                if len(self._ready.get((image.digest, storage), ())) < self._size:
                    return image, storage
        return None

    async def _sweep(self, current: set[str]) -> None:
        """Destroy the dead, and those of an image that is not wanted any more or was built again since."""
        await self._bury()
        for (digest, _), ready in self._ready.items():
            for one in [one for one in ready if digest not in current or one.agent.lost is not None]:
                ready.remove(one)
                await self._retire(one)
        await self._bury()

    async def _bury(self) -> None:
        """Destroy what was given up. Raises Error."""
        while self._dead:
            handle = self._dead.popleft()
            try:
                with anyio.CancelScope(shield=True):
                    await self._connections.drop(handle.sandbox_id)
                    await self._engine.destroy(handle)
            except BaseException:
                self._dead.append(handle)
                raise
