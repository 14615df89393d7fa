"""Create to first result, with the data stack imported, on an idle machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio

from benchmarks.bench import IDLE_S, Bench, clock, median, run
from benchmarks.peers import IMPORTS, Peers

if TYPE_CHECKING:
    from warren.domain import Handle

CODE = f"{IMPORTS}\n1 + 1"


async def measure(bench: Bench) -> None:
    """Time a new sandbox, a connection and a cell that imports the data stack, with the peers in between."""
    peers = Peers.of(bench.image, bench.folder)
    no_bubblewrap = peers.why_no_bubblewrap()
    ours: list[float] = []
    cold: list[float] = []
    bubblewrap: list[float] = []
    for round_number in range(bench.times(40, 8) + 2):
        await anyio.sleep(IDLE_S)
        took, handle = await _create_to_result(bench)
        await bench.engine.destroy(handle)
        await anyio.sleep(IDLE_S)
        imported = peers.cold()
        if no_bubblewrap is None:
            await anyio.sleep(IDLE_S)
            wrapped = peers.bubblewrap()
        if round_number < 2:
            continue  # The first ones fill caches, on both sides.
        ours.append(took)
        cold.append(imported)
        if no_bubblewrap is None:
            bubblewrap.append(wrapped)
    bench.note("create to first result, data stack imported, idle", median(ours), "ms")
    bench.note("peer: the same interpreter importing it cold", median(cold), "ms")
    bench.at_least("create: times faster than the cold import", median(cold) / median(ours), 30, "x")
    if no_bubblewrap is None:
        bench.at_most("create: faster than bubblewrap + bare Python", median(ours), median(bubblewrap), "ms")
    else:
        print(f"skipped the comparison with bubblewrap: {no_bubblewrap}")


async def _create_to_result(bench: Bench) -> tuple[float, Handle]:
    spec = bench.spec()
    made: list[Handle] = []

    async def once() -> None:
        made.append(await bench.engine.create(spec))
        async with bench.link(made[0]) as link:
            await run(link, CODE)

    return await clock(once), made[0]
