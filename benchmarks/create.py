"""Create to first result, data stack imported, on an idle machine: with the next sandbox ready, and without."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import anyio

from benchmarks.bench import IDLE_S, Bench, clock, median, run
from benchmarks.peers import IMPORTS, Peers

if TYPE_CHECKING:
    from warren.domain.values import Handle

CODE = f"{IMPORTS}\n1 + 1"
FILES = 1000
"""Open files that the sandboxes of the long way are allowed, and one more each time: none fits what is ready."""


async def measure(bench: Bench) -> None:
    """Time a new sandbox, a connection and a cell that imports the data stack, with the peers in between."""
    peers = Peers.of(bench.image, bench.folder)
    no_bubblewrap = peers.why_no_bubblewrap()
    took: dict[str, list[float]] = {"ours": [], "long": [], "cold": [], "bubblewrap": []}
    for round_number in range(bench.times(40, 8) + 2):
        times = {"ours": await _create_to_result(bench)}
        await anyio.sleep(IDLE_S)
        times["cold"] = peers.cold()
        times["long"] = await _create_to_result(bench, open_files=FILES + round_number)
        await anyio.sleep(IDLE_S)
        if no_bubblewrap is None:
            times["bubblewrap"] = peers.bubblewrap()
        # The next one is made like the last one that was asked for.
        await _create_to_result(bench)
        # The first ones fill caches, on both sides.
        for name, value in times.items() if round_number >= 2 else ():
            took[name].append(value)
    ours, cold = median(took["ours"]), median(took["cold"])
    bench.note("create to first result, data stack imported, idle", ours, "ms")
    bench.note("the same when none was ready: the long way", median(took["long"]), "ms")
    bench.note("peer: the same interpreter importing it cold", cold, "ms")
    bench.at_least("create: times faster than the cold import", cold / ours, 30, "x")
    bench.note("create, the long way: times faster than the cold import", cold / median(took["long"]), "x")
    if no_bubblewrap is None:
        bench.at_most("create: faster than bubblewrap + bare Python", ours, median(took["bubblewrap"]), "ms")
    else:
        print(f"skipped the comparison with bubblewrap: {no_bubblewrap}")


async def _create_to_result(bench: Bench, **limits: Any) -> float:
    await anyio.sleep(IDLE_S)
    spec = bench.spec(**limits)
    made: list[Handle] = []

    async def once() -> None:
        made.append(await bench.engine.create(spec))
        async with bench.agent(made[0]) as agent:
            await run(agent, CODE)

    took = await clock(once)
    await bench.engine.destroy(made[0])
    return took
