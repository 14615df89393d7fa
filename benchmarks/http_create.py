"""Create and first result over HTTP, from the pool and with it empty, beside a cold import; and 100 at once."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

from benchmarks.bench import IDLE_S, Bench, median
from benchmarks.peers import IMPORTS, Peers
from benchmarks.served import served

if TYPE_CHECKING:
    from benchmarks.served import Client, Served

CODE = f"{IMPORTS}\n1 + 1"
AT_ONCE = 100


async def measure(bench: Bench) -> None:
    """Measure a service with a pool, then one without."""
    peers = Peers.of(bench.image, bench.folder)
    cold = median([peers.cold() for _ in range(bench.times(10, 3))])
    bench.note("peer: the same interpreter importing it cold", cold, "ms")
    for pool_size, target_ms, times_faster in ((2, 15, 40), (0, 25, 30)):
        where = "from the pool" if pool_size else "pool empty"
        with served(bench.image, bench.folder, pool_size=pool_size) as service:
            client = service.client()
            took = [_create_to_result(client) for _ in range(bench.times(40, 8) + 2)][2:]
            bench.at_most(f"create and first result over HTTP, {where}", median(took), target_ms, "ms")
            bench.at_least(f"the same, {where}: times faster than cold", cold / median(took), times_faster, "x")
            if not pool_size:
                _burst(bench, service)


def _create_to_result(client: Client) -> float:
    time.sleep(IDLE_S)
    made: list[str] = []

    def once() -> None:
        made.append(client.get("POST", "/api/v1/sandboxes", {})["id"])
        client.run(made[0], CODE)

    took = client.clock(once)
    client.get("DELETE", f"/api/v1/sandboxes/{made[0]}")
    return took


def _burst(bench: Bench, service: Served) -> None:
    took: list[float] = []
    failed: list[str] = []
    clients = [service.client() for _ in range(AT_ONCE)]
    for client in clients:
        client.get("GET", "/livez")
    ready = threading.Barrier(AT_ONCE)

    def create(client: Client) -> None:
        ready.wait()
        try:
            took.append(client.clock(lambda: client.get("POST", "/api/v1/sandboxes", {})))
        except (RuntimeError, OSError) as error:
            failed.append(str(error))

    threads = [threading.Thread(target=create, args=(client,)) for client in clients]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    bench.at_most(f"{AT_ONCE} simultaneous creates: failures", len(failed), 0, "")
    bench.at_most("the same: 99th percentile", sorted(took)[int(len(took) * 0.99) - 1] / 1000, 1.2, "s")
