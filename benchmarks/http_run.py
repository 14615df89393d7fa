"""One-shot runs a second, sustained: a fresh sandbox each, from a few clients at once."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

from benchmarks.served import served

if TYPE_CHECKING:
    from benchmarks.bench import Bench

CLIENTS = 8


async def measure(bench: Bench) -> None:
    """Count what is answered in a few seconds, and say which processes used the processors meanwhile."""
    seconds = bench.times(15, 4)
    with served(bench.image, bench.folder, pool_size=8) as service:
        warm = service.client()
        for _ in range(10):
            warm.get("POST", "/api/v1/run", {"code": "print(1 + 1)"})
        done: list[int] = []
        until = time.monotonic() + seconds

        def work() -> None:
            client, count = service.client(), 0
            while time.monotonic() < until:
                answer = client.get("POST", "/api/v1/run", {"code": "print(1 + 1)"})
                if answer["stdout"] != "2\n":
                    raise RuntimeError(f"a one-shot answered {answer}")
                count += 1
            done.append(count)

        threads = [threading.Thread(target=work) for _ in range(CLIENTS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    bench.at_least("one-shot runs over HTTP", sum(done) / seconds, 60, "/s")
