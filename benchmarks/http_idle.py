"""1,000 idle sandboxes: the service answers as fast as with 10, and each takes little memory."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import anyio

from benchmarks.bench import Bench, median
from benchmarks.served import served

if TYPE_CHECKING:
    from benchmarks.served import Client, Served

FEW = 10
SETTLE_S = 3.0


async def measure(bench: Bench) -> None:
    """Compare a call in one sandbox, first among few and then among many."""
    many = bench.times(1000, 100)
    settings = {"pool_size": 0, "quota_active": 0, "quota_sandboxes": 0, "quota_creates_per_minute": 0}
    with served(bench.image, bench.folder, **settings) as service:
        sandboxes = _create(service, FEW)
        few_ms, few_mb = _calls(bench, service.client(), sandboxes[0]), _used_mb()
        _create(service, many - FEW)
        await anyio.sleep(SETTLE_S)
        many_ms, many_mb = _calls(bench, service.client(), sandboxes[0]), _used_mb()
    bench.note(f"warm 1+1 over HTTP with {FEW} idle sandboxes", few_ms, "ms")
    bench.at_most(f"the same with {many:,}", many_ms, 1.5 * few_ms, "ms")
    bench.at_most("memory of the machine for one more idle sandbox", (many_mb - few_mb) / (many - FEW), 8, "MB")


def _create(service: Served, count: int) -> list[str]:
    mine = threading.local()

    def connect() -> None:
        mine.client = service.client()

    def create(_number: int) -> str:
        made: str = mine.client.get("POST", "/api/v1/sandboxes", {"disk_mb": 16})["id"]
        return made

    with ThreadPoolExecutor(4, initializer=connect) as pool:
        return list(pool.map(create, range(count)))


def _calls(bench: Bench, client: Client, sandbox: str) -> float:
    took = []
    for _ in range(bench.times(60, 20)):
        time.sleep(0.05)
        took.append(client.clock(lambda: client.run(sandbox, "1+1")))
    return median(took)


def _used_mb() -> float:
    """Memory of the whole machine that is in use, caches aside: what the sandboxes, the keeper and the kernel hold."""
    with open("/proc/meminfo", encoding="ascii") as file:
        values = {line.split(":")[0]: int(line.split()[1]) for line in file}
    return (values["MemTotal"] - values["MemAvailable"]) * 1024 / 1e6
