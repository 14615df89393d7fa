"""A warm `1+1` over HTTP, audit on, against the same service's `GET /livez`."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from benchmarks.bench import Bench, median
from benchmarks.served import served

if TYPE_CHECKING:
    from benchmarks.served import Client

SPACING_S = 0.05


async def measure(bench: Bench) -> None:
    """Interleave the calls with the yardstick, each after the same pause."""
    with served(bench.image, bench.folder, pool_size=0) as service:
        client = service.client()
        _compare(bench, client, "warm 1+1 over HTTP, checkpoints, 50 ms apart", 5, {})
        _compare(bench, client, "warm 1+1 over HTTP, no checkpoints, 50 ms apart", 3, {"checkpoints": 0})


def _compare(bench: Bench, client: Client, what: str, factor: float, limits: dict[str, int]) -> None:
    sandbox = client.get("POST", "/api/v1/sandboxes", limits)["id"]
    for _ in range(10):
        client.run(sandbox, "1+1")
    ours: list[float] = []
    alive: list[float] = []
    for _ in range(bench.times(100, 20)):
        time.sleep(SPACING_S)
        ours.append(client.clock(lambda: client.run(sandbox, "1+1")))
        time.sleep(SPACING_S)
        alive.append(client.clock(lambda: client.get("GET", "/livez")))
    client.get("DELETE", f"/api/v1/sandboxes/{sandbox}")
    bench.note("yardstick: GET /livez", median(alive), "ms")
    bench.at_most(what, median(ours), factor * median(alive), "ms")
