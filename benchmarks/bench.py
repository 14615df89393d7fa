"""What every benchmark stands on: an engine and an image to measure, and rows of what was promised and found."""

from __future__ import annotations

import contextlib
import statistics
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import anyio

from warren.core.agent.client import AgentClient
from warren.domain.values import ExecRequest, Limits, SandboxSpec, new_id

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from warren.domain.values import ExecResult, Handle, Image
    from warren.engines.local.engine import LocalEngine

IDLE_S = 0.2
"""Between calls where a promise says idle: a hot loop hides what the machine does when it wakes up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One line of the report. Without a target it is there to be compared with."""

    promise: str
    measured: float
    unit: str
    target: float | None = None
    higher_is_better: bool = False

    @property
    def kept(self) -> bool:
        """Whether the promise holds."""
        if self.target is None:
            return True
        return self.measured >= self.target if self.higher_is_better else self.measured <= self.target

    @property
    def margin(self) -> float | None:
        """How many times better than promised; below 1 is a miss."""
        if self.target is None or not self.measured or not self.target:
            return None
        return self.measured / self.target if self.higher_is_better else self.target / self.measured


@dataclass(slots=True)
class Bench:
    """One run: where sandboxes come from, how patient to be, and the rows so far."""

    engine: LocalEngine
    image: Image
    folder: str
    """Data folder of the engine, private to this run."""
    quick: bool = False
    decks: str | None = None
    """Folder of decks to render besides."""
    rows: list[Row] = field(default_factory=list)

    def times(self, full: int, quick: int) -> int:
        """Choose how often to repeat."""
        return quick if self.quick else full

    def note(self, promise: str, measured: float, unit: str) -> None:
        """Add a row that promises nothing."""
        self.rows.append(Row(promise=promise, measured=measured, unit=unit))

    def at_most(self, promise: str, measured: float, target: float, unit: str) -> None:
        """Add a promise that is kept when the measured value is small."""
        self.rows.append(Row(promise=promise, measured=measured, unit=unit, target=target))

    def at_least(self, promise: str, measured: float, target: float, unit: str) -> None:
        """Add a promise that is kept when the measured value is large."""
        self.rows.append(Row(promise=promise, measured=measured, unit=unit, target=target, higher_is_better=True))

    def spec(self, **limits: Any) -> SandboxSpec:
        """Describe a new sandbox of the image that is measured."""
        return SandboxSpec(id=new_id("sbx"), image=self.image, limits=Limits(**limits))

    @contextlib.asynccontextmanager
    async def agent(self, handle: Handle) -> AsyncIterator[AgentClient]:
        """Connect to a sandbox for the length of a block."""
        async with AgentClient(await self.engine.connect(handle)) as agent:
            yield agent

    @contextlib.asynccontextmanager
    async def sandbox(self, **limits: Any) -> AsyncIterator[AgentClient]:
        """Create a sandbox and connect to it, for the length of a block."""
        handle = await self.engine.create(self.spec(**limits))
        try:
            async with self.agent(handle) as agent:
                yield agent
        finally:
            with anyio.CancelScope(shield=True):
                await self.engine.destroy(handle)


async def run(agent: AgentClient, code: str, **fields: Any) -> ExecResult:
    """Run a cell that must end well."""
    result = await agent.run(ExecRequest(id=new_id("exe"), code=code, **fields))
    if not result.ok:
        raise RuntimeError(f"{code!r} ended with {result.cause}: {result.error or result.stderr!r}")
    return result


async def clock(work: Callable[[], Awaitable[object]]) -> float:
    """Measure one call, in milliseconds."""
    began = time.perf_counter()
    await work()
    return (time.perf_counter() - began) * 1000


def median(values: list[float]) -> float:
    """Take the middle one: a neighbour's burst of work must not decide."""
    return statistics.median(values)
