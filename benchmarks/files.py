"""A 100 MB file in and out through the agent."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

from benchmarks.bench import Bench, clock, median

if TYPE_CHECKING:
    from warren.core.agent.client import AgentClient

SIZE = 100_000_000
NAME = "large.bin"


async def measure(bench: Bench) -> None:
    """Write and read it in turn, as a stream: what a service does with it."""
    content = os.urandom(1 << 20) * (SIZE // (1 << 20)) + bytes(SIZE % (1 << 20))
    writing: list[float] = []
    reading: list[float] = []
    async with bench.sandbox() as agent:
        for _ in range(bench.times(10, 3) + 1):
            writing.append(await clock(lambda: agent.write(NAME, content)))
            reading.append(await clock(lambda: _read(agent)))
        if await agent.read_bytes(NAME, SIZE) != content:
            raise RuntimeError("what was read is not what was written")
    # The first ones fill caches, and make room in the image that the workspace is.
    bench.at_least("write a 100 MB file through the agent", _rate(writing[1:]), 300, "MB/s")
    bench.at_least("read a 100 MB file through the agent", _rate(reading[1:]), 300, "MB/s")


async def _read(agent: AgentClient) -> None:
    size = 0
    async with contextlib.aclosing(agent.read(NAME)) as pieces:
        async for piece in pieces:
            size += len(piece)
    if size != SIZE:
        raise RuntimeError(f"{size} bytes were read of {SIZE}")


def _rate(took_ms: list[float]) -> float:
    return SIZE / 1e6 / (median(took_ms) / 1000)
