"""A warm `1+1` through the agent, without and with checkpoints, against starting a Python that does nothing."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import anyio

from benchmarks.bench import Bench, clock, median, run
from benchmarks.peers import Peers

if TYPE_CHECKING:
    from warren.core.agent.client import AgentClient

SPACING_S = 0.05
IN_A_ROW = 5


async def measure(bench: Bench) -> None:
    """Each series is interleaved with its peer."""
    peers = Peers.of(bench.image, bench.folder)
    async with bench.sandbox(checkpoints=0) as plain, bench.sandbox() as protected:
        for agent in (plain, protected):
            for _ in range(10):
                await run(agent, "1+1")
        await _back_to_back(bench, peers, plain, "warm 1+1, no checkpoints", 1 / 10)
        await _spaced(bench, peers, protected)
        await _back_to_back(bench, peers, protected, "warm 1+1, checkpoints, back to back", 1 / 2)
        result = await run(protected, "1+1")
        if not result.protected:
            raise RuntimeError(f"the kernel was not checkpointed: {result.why_unprotected}")


async def _back_to_back(bench: Bench, peers: Peers, agent: AgentClient, what: str, part: float) -> None:
    ours: list[float] = []
    bare: list[float] = []
    for _ in range(bench.times(60, 12)):
        bare.append(peers.bare())
        ours += [await clock(lambda: run(agent, "1+1")) for _ in range(IN_A_ROW)]
    _report(bench, what, ours, bare, part)


async def _spaced(bench: Bench, peers: Peers, agent: AgentClient) -> None:
    ours: list[float] = []
    bare: list[float] = []
    for _ in range(bench.times(100, 20)):
        next_call = time.perf_counter() + SPACING_S
        # In the middle of the gap: the checkpoint of the call before is made by then.
        await anyio.sleep(SPACING_S / 2)
        bare.append(peers.bare())
        await anyio.sleep(max(0.0, next_call - time.perf_counter()))
        ours.append(await clock(lambda: run(agent, "1+1")))
    _report(bench, "warm 1+1, checkpoints, 50 ms apart", ours, bare, 1 / 3)


def _report(bench: Bench, what: str, ours: list[float], bare: list[float], part: float) -> None:
    bench.note("peer: bare Python start", median(bare), "ms")
    bench.at_most(what, median(ours), median(bare) * part, "ms")
