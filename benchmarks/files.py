"""A 100 MB file in and out through the agent."""

from __future__ import annotations

import os

from benchmarks.bench import Bench, clock, median

SIZE = 100_000_000


async def measure(bench: Bench) -> None:
    """Written and read in turn; what is read is what was written."""
    content = os.urandom(1 << 20) * (SIZE // (1 << 20)) + bytes(SIZE % (1 << 20))
    writing: list[float] = []
    reading: list[float] = []
    async with bench.sandbox() as link:
        for _ in range(bench.times(10, 3)):
            writing.append(await clock(lambda: link.write("large.bin", content)))
            found: list[bytes] = []

            async def read() -> None:
                found.append(await link.read_bytes("large.bin", SIZE))  # noqa: B023  (called before the next round)

            reading.append(await clock(read))
            if found[0] != content:
                raise RuntimeError("what was read is not what was written")
    bench.at_least("write a 100 MB file through the agent", _rate(writing), 300, "MB/s")
    bench.at_least("read a 100 MB file through the agent", _rate(reading), 300, "MB/s")


def _rate(took_ms: list[float]) -> float:
    return SIZE / 1e6 / (median(took_ms) / 1000)
