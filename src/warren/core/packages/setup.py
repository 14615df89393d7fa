"""What the service needs to know of packages to begin with; everything else is made when somebody asks for one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import anyio

from warren.core.packages.sources import PackageSources
from warren.core.telemetry.counters import Counters

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from warren.core.egress.internal_hosts import InnerAnswer, InnerRequest
    from warren.core.packages.index import PackageIndex


@dataclass(frozen=True, slots=True, kw_only=True)
class PackageSetup:
    """Where packages come from, and where they are kept."""

    folder: str
    load: Callable[[], PackageSources] = PackageSources
    """Called in a thread, once."""
    timeout_s: float = 300.0
    """Of an installation, when the caller does not say."""


class PackageDoor:
    """The package index, which is made when somebody first asks. Use it with `async with`."""

    def __init__(self, setup: PackageSetup, observer: Counters | None = None) -> None:
        self._setup = setup
        self._observer = observer or Counters()
        self._index: PackageIndex | None = None

    async def __aenter__(self) -> Self:
        self._tasks = anyio.create_task_group()
        await self._tasks.__aenter__()
        return self

    async def __aexit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        if self._index is not None:
            await self._index.aclose()
        # The body's exception is not handed over: a task group would wrap it, and callers catch it by its class.
        await self._tasks.__aexit__(None, None, None)

    async def __call__(self, request: InnerRequest) -> InnerAnswer:
        """Answer a request for the index."""
        if self._index is None:
            # Not above: most services never need it, and all of them would start later.
            from warren.core.packages.index import PackageIndex

            self._index = PackageIndex(self._setup.load, self._setup.folder, self._tasks, self._observer)
        return await self._index(request)
