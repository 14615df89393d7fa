"""Image builds of a running service: one at a time, independent of the request that started it."""

from __future__ import annotations

import contextlib
import functools
import time
from typing import TYPE_CHECKING, Self

import anyio
from anyio import from_thread, to_thread

from warren.core.concurrency.steps import StepLog
from warren.core.images.catalog import BuildStep, Stop
from warren.core.policy.policy import check_may
from warren.domain.errors import Conflict, Error
from warren.domain.records import SandboxQuery, Scope

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator
    from types import TracebackType

    from anyio.abc import TaskGroup

    from warren.core.audit.log import Audit
    from warren.core.images.cache import ImageCache
    from warren.core.images.catalog import Catalog, ImageSpec, ImageStatus
    from warren.core.sandboxes.pool import SandboxPool
    from warren.domain.records import Caller
    from warren.engines.base import Engine
    from warren.stores.base import Store

_MOST_STEPS = 2000
_PAGE = 500
_QUIET_S = 20.0


class Build(StepLog[BuildStep]):
    """One build of an image by this service, and its progress."""

    def __init__(self, image: str, started_at: float) -> None:
        super().__init__(_MOST_STEPS)
        self.image = image
        self.started_at = started_at
        self.finished_at: float | None = None
        self.error: Error | None = None
        self.stop = Stop()

    @property
    def step(self) -> BuildStep:
        """The latest step."""
        return self.steps[-1] if self.steps else BuildStep("waiting")

    def note(self, step: BuildStep) -> None:
        """Append a step that differs from the last."""
        if self.step != step:
            super().note(step)

    async def follow(self) -> AsyncGenerator[BuildStep, None]:
        """Yield every step from the first to the end. Raises the failure of the build."""
        async with contextlib.aclosing(super().follow()) as steps:
            async for step in steps:
                yield step
        if self.error is not None:
            raise self.error


class ImageBuilds:
    """Builds images in the background; `async with` it. Leaving stops a build and removes what it made."""

    def __init__(
        self, *, catalog: Catalog, images: ImageCache, store: Store, pool: SandboxPool, engine: Engine, audit: Audit
    ) -> None:
        self._catalog = catalog
        self._images = images
        self._store = store
        self._pool = pool
        self._engine = engine
        self._audit = audit
        self._last: dict[str, Build] = {}
        self._running: Build | None = None
        self._tasks: TaskGroup | None = None

    async def __aenter__(self) -> Self:
        self._tasks = await anyio.create_task_group().__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._tasks is not None
        if self._running is not None:
            self._running.stop.ask()
        await self._tasks.__aexit__(kind, error, trace)

    def last(self, name: str) -> Build | None:
        """Return the running or last build of an image in this service."""
        return self._last.get(name)

    async def status(self, name: str) -> tuple[ImageSpec, ImageStatus]:
        """Return an image, by its name or an alias, and whether it is built. Raises NotFound."""
        spec = await to_thread.run_sync(self._catalog.spec, name)
        while True:
            turn = self._images.turn
            status = await to_thread.run_sync(self._catalog.status, spec.name)
            # WHY: a build that ended meanwhile would appear neither built nor running.
            if turn == self._images.turn:
                return spec, status

    async def start(self, caller: Caller, name: str) -> Build | None:
        """Start to build an image, or join a running build; None when it is built. Raises NotFound and Conflict."""
        check_may(caller, Scope.ADMIN)
        spec, status = await self.status(name)
        if self._running is not None:
            if self._running.image != spec.name:
                raise Conflict(f"image {self._running.image} is being built: wait until that is done")
            return self._running
        self._check_stays(spec.name)
        if status.built:
            return None
        self._audit.check_writable()
        self._running = self._last[spec.name] = build = Build(spec.name, time.time())
        assert self._tasks is not None
        self._tasks.start_soon(self._build, caller, build)
        return build

    async def remove(self, caller: Caller, name: str, *, stale_only: bool = False) -> int:
        """Delete all builds of an image, or only stale ones, and return the bytes freed. The spec stays.

        Raises NotFound, and Conflict while it is being built or sandboxes use it.
        """
        check_may(caller, Scope.ADMIN)
        spec, status = await self.status(name)
        async with self._audit.operation(
            caller, "image.remove", with_message=True, image=spec.name, stale_only=stale_only
        ) as noted:
            if self._running is not None and self._running.image == spec.name:
                raise Conflict(f"image {spec.name} is being built: wait until that is done")
            self._check_stays(spec.name)
            doomed = set(status.stale) if stale_only else {status.digest, *status.stale}
            async with self._closed_to_new(spec.name, is_all=not stale_only):
                in_use = await self._find_used(spec.name, doomed)
                if in_use:
                    raise Conflict(
                        f"{in_use} {'sandbox is' if in_use == 1 else 'sandboxes are'} made from image {spec.name}, "
                        "stopped ones too: delete them first"
                    )
                remove = functools.partial(self._catalog.remove, spec.name, stale_only=stale_only)
                noted["freed_bytes"] = freed = await to_thread.run_sync(remove)
                retire = getattr(self._engine, "retire", None)
                if freed and retire is not None:
                    # Processes that the engine keeps warm hold files open that are gone now.
                    await retire()
        return freed

    def _check_stays(self, name: str) -> None:
        """Raise Conflict for an image that is being removed: a build would be removed with it."""
        if name in self._images.removing:
            raise Conflict(f"image {name} is being removed: wait until that is done")

    @contextlib.asynccontextmanager
    async def _closed_to_new(self, name: str, *, is_all: bool) -> AsyncIterator[None]:
        """Refuse new sandboxes from an image, and wait until those being created are done."""
        if not is_all:
            yield
            return
        self._images.removing.add(name)
        try:
            self._images.forget()
            with anyio.move_on_after(_QUIET_S) as waiting:
                await self._pool.evict(name)
            if waiting.cancelled_caught:
                raise Conflict("sandboxes are being made without a pause: try again when it is quieter")
            yield
        finally:
            self._images.removing.discard(name)
            self._images.forget()

    async def _find_used(self, name: str, digests: set[str]) -> int:
        count = offset = 0
        while True:
            page = await self._store.list(SandboxQuery(image=name, offset=offset, limit=_PAGE))
            count += sum(sandbox.image_digest in digests for sandbox in page.items)
            offset += len(page.items)
            if not page.items or offset >= page.total:
                return count

    async def _build(self, caller: Caller, build: Build) -> None:
        try:
            async with self._audit.operation(caller, "image.build", with_message=True, image=build.image) as noted:
                with anyio.CancelScope(shield=True):
                    work = functools.partial(
                        self._catalog.build, build.image, functools.partial(_pass_on, build), stop=build.stop
                    )
                    noted["digest"] = (await to_thread.run_sync(work)).digest
        except Error as error:
            build.error = error
        finally:
            build.finished_at = time.time()
            self._running = None
            self._images.forget()
            build.end()


def _pass_on(build: Build, step: BuildStep) -> None:
    """Append a step from the thread of a build."""
    from_thread.run_sync(build.note, step)
