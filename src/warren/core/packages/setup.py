"""Package index of a service, created at the first request: most services never need it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import anyio

from warren.core.packages.sources import PackageSources
from warren.core.telemetry.counters import Counters

if TYPE_CHECKING:
    from collections.abc import Callable

    from warren.core.egress.internal_hosts import InnerAnswer, InnerRequest
    from warren.core.packages.index import PackageIndex


@dataclass(frozen=True, slots=True, kw_only=True)
class PackageSetup:
    """Sources and folder of the package index."""

    folder: str
    load: Callable[[], PackageSources] = PackageSources
    """Called once, in a thread."""
    timeout_s: float = 300.0
    """Default of an installation."""


class PackageDoor:
    """The package index, created at the first request. Use it with `async with`."""

    def __init__(self, setup: PackageSetup, observer: Counters | None = None) -> None:
        self._setup = setup
        self._observer = observer or Counters()
        self._index: PackageIndex | None = None

    async def __aenter__(self) -> Self:
        self._tasks = anyio.create_task_group()
        await self._tasks.__aenter__()
        return self

    async def __aexit__(self, *_raised: object) -> None:
        if self._index is not None:
            await self._index.aclose()
        # The exception of the body is not passed on: a task group would wrap it, and callers catch its class.
        await self._tasks.__aexit__(None, None, None)

    async def __call__(self, request: InnerRequest) -> InnerAnswer:
        """Answer a request to the index."""
        if self._index is None:
            # Imported here: services without packages start faster.
            from warren.core.packages.index import PackageIndex

            self._index = PackageIndex(self._setup.load, self._setup.folder, self._tasks, self._observer)
        return await self._index(request)
