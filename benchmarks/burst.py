"""Many sandboxes: a hundred at once, one more among five hundred, and what is left when they are gone."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, TypeVar

import anyio

from benchmarks.bench import IDLE_S, Bench, clock, median, run
from benchmarks.traces import Traces, look

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable

    from warren.domain.values import Handle

T = TypeVar("T")

AT_ONCE = 100
PAUSE_S = 3.0
SETTLE_S = 10.0
"""The kernel frees loop devices and groups a little after the process that held them."""


async def measure(bench: Bench) -> None:
    """Everything is made before it is judged, so that a failure is seen with what it left."""
    many = bench.times(500, 100)
    await bench.engine.destroy(await bench.engine.create(bench.spec()))
    await anyio.sleep(PAUSE_S)
    before = look(bench.folder)
    few = await _create(bench, 10)
    with_few = await _one_more(bench)
    handles, rate = await _create_at_once(bench)
    bench.at_least(f"{AT_ONCE} created at once, on {AT_ONCE} tasks", rate, 100, "/s")
    handles += few + await _create(bench, many - len(few) - len(handles))
    await anyio.sleep(PAUSE_S)
    with_many = await _one_more(bench)
    bench.note("create with 10 alive, idle", with_few, "ms")
    bench.at_most(f"create with {many} alive, after a pause", with_many, 2 * with_few, "ms")
    await _check_answers(bench, handles)
    took = await clock(lambda: _each(handles, bench.engine.destroy))
    bench.note(f"destroy {many}, each", took / many, "ms")
    await _check_nothing_left(bench, before)


async def _create_at_once(bench: Bench) -> tuple[list[Handle], float]:
    rates: list[float] = []
    handles: list[Handle] = []
    for _ in range(bench.times(3, 1)):
        await _each(handles, bench.engine.destroy)
        await anyio.sleep(PAUSE_S)
        began = time.perf_counter()
        handles = await _create(bench, AT_ONCE)
        rates.append(AT_ONCE / (time.perf_counter() - began))
        await _check_answers(bench, handles)
    return handles, median(rates)


async def _create(bench: Bench, count: int) -> list[Handle]:
    handles: list[Handle] = []

    async def one(_: int) -> None:
        handles.append(await bench.engine.create(bench.spec()))

    await _each(range(count), one)
    return handles


async def _one_more(bench: Bench) -> float:
    took: list[float] = []
    for _ in range(bench.times(20, 8)):
        await anyio.sleep(IDLE_S)
        spec = bench.spec()
        made: list[Handle] = []

        async def once() -> None:
            made.append(await bench.engine.create(spec))  # noqa: B023  (called before the next round)

        took.append(await clock(once))
        await bench.engine.destroy(made[0])
    return median(took)


async def _check_answers(bench: Bench, handles: Iterable[Handle]) -> None:
    """Run code in each: only then does a sandbox count as made."""
    few_at_once = anyio.CapacityLimiter(16)

    async def ask(handle: Handle) -> None:
        async with few_at_once, bench.agent(handle) as agent:
            await run(agent, "1+1")

    await _each(handles, ask)


async def _check_nothing_left(bench: Bench, before: Traces) -> None:
    deadline = time.monotonic() + SETTLE_S
    while (after := look(bench.folder)) != before and time.monotonic() < deadline:  # noqa: ASYNC110  (no event tells)
        await anyio.sleep(0.05)
    left = sum(max(0, getattr(after, name) - getattr(before, name)) for name in Traces.__slots__)
    if left:
        print(f"before: {before}\nafter:  {after}")
    bench.at_most("processes, mounts, loop devices, groups and files left", left, 0, "")


async def _each(items: Iterable[T], work: Callable[[T], Coroutine[object, object, object]]) -> None:
    async with anyio.create_task_group() as tasks:
        for item in items:
            tasks.start_soon(work, item)
