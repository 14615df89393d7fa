"""Runs in the guest: times sandboxes of the local engine, made the long way, and their ends; prints milliseconds."""

from __future__ import annotations

import json
import sys
import time

import anyio

from warren.core.images.catalog import Catalog
from warren.domain.values import Limits, SandboxSpec, new_id
from warren.engines.local.engine import LocalEngine

DATA = "/var/lib/warren"
WARM_UP = 2


async def measure(times: int) -> dict[str, list[float]]:
    image = Catalog(DATA).build("python")
    took: dict[str, list[float]] = {"create": [], "destroy": []}
    engine = LocalEngine(DATA)
    await engine.open()
    try:
        for number in range(times + WARM_UP):
            # WHY another number each time: one that fits was made beforehand, and would cost nothing here.
            spec = SandboxSpec(id=new_id("sbx"), image=image, limits=Limits(open_files=1000 + number))
            began = time.perf_counter()
            handle = await engine.create(spec)
            made = time.perf_counter()
            await engine.destroy(handle)
            ended = time.perf_counter()
            if number >= WARM_UP:
                took["create"].append((made - began) * 1000)
                took["destroy"].append((ended - made) * 1000)
    finally:
        await engine.close()
    return took


if __name__ == "__main__":
    print(json.dumps(anyio.run(measure, int(sys.argv[1]))))
