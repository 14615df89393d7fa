"""One tenant's one-shots while another makes sandboxes of odd disk sizes, beside its own quiet time."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING

from anyio import to_thread

from benchmarks.bench import IDLE_S, Bench, median
from benchmarks.served import served

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.served import Client, Served

AT_ONCE = 8
_SMALLEST_MIB = 1021


async def measure(bench: Bench) -> None:
    """Measure a service without a pool."""
    await to_thread.run_sync(_measure, bench)


def _measure(bench: Bench) -> None:
    """Measure without and with the other tenant in turn, so that the machine's noise meets both.

    Without a pool: each one-shot makes its own sandbox, by the keeper that makes the other tenant's.
    """
    with served(bench.image, bench.folder, pool_size=0) as service:
        client, noisy = service.client(), service.create_key("noisy")
        rounds = bench.times(20, 8)
        sizes = _choose_sizes(bench.folder, rounds * AT_ONCE)
        quiet, loud = list[float](), list[float]()
        for number in range(rounds):
            time.sleep(IDLE_S)
            quiet.append(_clock(client))
            time.sleep(IDLE_S)
            with _creating(service, noisy, sizes[number::rounds]) as creates:
                while not all(each.done() for each in creates):
                    loud.append(_clock(client))
        bench.note("one-shot over HTTP, quiet", median(quiet), "ms")
        bench.note(f"the same beside {AT_ONCE} creates of odd disk sizes", median(loud), "ms")
        bench.note("the same, at worst", max(loud), "ms")
        bench.at_most("the same, times its quiet time", median(loud) / median(quiet), 3, "x")


def _choose_sizes(folder: str, count: int) -> list[int]:
    """Return sizes in MiB, all different, up to the largest that a service with this folder allows."""
    at = os.statvfs(folder)
    largest = at.f_blocks * at.f_frsize // 2 >> 20
    return [_SMALLEST_MIB + (largest - _SMALLEST_MIB) * number // count for number in range(count)]


def _clock(client: Client) -> float:
    return client.clock(lambda: client.get("POST", "/api/v1/run", {"code": "print(1)"}))


@contextlib.contextmanager
def _creating(service: Served, key: str, sizes: list[int]) -> Iterator[list[Future[None]]]:
    """Have another tenant create a sandbox of each size at once, and delete them after the block."""
    made: list[str] = []
    begun = threading.Barrier(len(sizes) + 1)

    def create(size: int) -> None:
        client = service.client(key)
        begun.wait()
        made.append(client.get("POST", "/api/v1/sandboxes", {"disk_mb": size})["id"])

    with ThreadPoolExecutor(len(sizes)) as threads:
        creates = [threads.submit(create, size) for size in sizes]
        begun.wait()
        yield creates
        for each in creates:
            each.result()
    client = service.client(key)
    for one in made:
        client.get("DELETE", f"/api/v1/sandboxes/{one}")
