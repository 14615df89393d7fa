"""Installing numpy in a fresh sandbox: from the service's cache, and before it is there."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING

from benchmarks.bench import Bench, median
from benchmarks.served import served
from warren.core.images import Catalog

if TYPE_CHECKING:
    from benchmarks.served import Client

NAME = "numpy"


async def measure(bench: Bench) -> None:
    """Install it in turn with an empty cache and with a full one, each time in a new sandbox."""
    # The image that most benchmarks use has it already.
    image = Catalog(bench.image.path.partition("/images/")[0]).build("python")
    empty, full = [], []
    for _ in range(bench.times(5, 2)):
        # Another service each time, with a folder of its own: it has nothing yet.
        with served(image, bench.folder, pool_size=0) as service:
            client = service.client()
            try:
                empty.append(install(client))
            except RuntimeError as error:
                print(f"packages: not measured, {NAME} cannot be installed here: {error}")
                return
            full += [install(client) for _ in range(bench.times(4, 2))]
    cached, uncached = median(full), median(empty)
    bench.at_most("install a cached numpy in a fresh sandbox", cached, 2.0, "s")
    bench.note("the same with an empty cache", uncached, "s")
    bench.at_least("an empty cache takes longer", uncached / cached, 3.0, "times")


def install(client: Client) -> float:
    """Install in a sandbox that was just made, and return the seconds that took."""
    sandbox = client.get("POST", "/api/v1/sandboxes", {"egress": "packages"})["id"]
    path = f"/api/v1/sandboxes/{sandbox}"
    began = time.perf_counter()
    done = client.get("POST", f"{path}/packages", {"packages": [NAME]})
    took = time.perf_counter() - began
    if not done["ok"]:
        raise RuntimeError(json.dumps(done["output"][-300:]))
    client.run(sandbox, f"import {NAME}")
    client.ask("DELETE", path)
    return took
