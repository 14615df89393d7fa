"""A call in a workspace of 100,000 files against one in an empty workspace."""

from __future__ import annotations

from benchmarks.bench import Bench, clock, median, run

FOLDERS, FILES = 100, 1000
FILL = f"""
import os
for folder in range({FOLDERS}):
    os.mkdir(str(folder))
    for name in range({FILES}):
        os.close(os.open(f"{{folder}}/{{name}}", os.O_CREAT | os.O_WRONLY))
"""


async def measure(bench: Bench) -> None:
    """Make the same call in both, one after the other."""
    async with bench.sandbox() as empty, bench.sandbox() as full:
        await run(full, FILL)
        in_empty: list[float] = []
        in_full: list[float] = []
        for _ in range(bench.times(40, 8)):
            in_empty.append(await clock(lambda: run(empty, "1+1")))
            in_full.append(await clock(lambda: run(full, "1+1")))
    bench.note("call in an empty workspace", median(in_empty), "ms")
    extra = median(in_full) - median(in_empty)
    bench.at_most(f"more for a call among {FOLDERS * FILES:,} files", extra, 60, "ms")
