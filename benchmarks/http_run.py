"""One-shot runs a second, sustained: a fresh sandbox each, from a few clients at once."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

from benchmarks.served import served

if TYPE_CHECKING:
    from benchmarks.bench import Bench

CLIENTS = 8
ANSWER_S = 60.0
"""How long the last answer may take."""


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

        # Daemons, and joined with a deadline: an answer that never comes must not hold up the process.
        threads = [threading.Thread(target=work, daemon=True) for _ in range(CLIENTS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(max(0.0, until + ANSWER_S - time.monotonic()))
        if len(done) < CLIENTS:
            raise RuntimeError(
                f"{CLIENTS - len(done)} of {CLIENTS} clients failed, or had no answer {ANSWER_S:g} s after the end; "
                f"the log of the service ends: {service.read_log_end()}"
            )
    bench.at_least("one-shot runs over HTTP", sum(done) / seconds, 60, "/s")
