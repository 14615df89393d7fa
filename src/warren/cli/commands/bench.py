"""`warren bench`: how fast sandboxes are here, beside the same interpreter started cold."""

from __future__ import annotations

import os
import statistics
import subprocess
import time
from typing import TYPE_CHECKING, Annotated, NamedTuple

from warren.cli.options import AllowBare, AsJson, Choice, EngineName, ImageName, option
from warren.cli.terminal.tables import print_json, print_table

if TYPE_CHECKING:
    from warren.cli.service.embedded import Prepared
    from warren.cli.terminal.signals import Signals
    from warren.domain.values import Image
    from warren.engines.base import Engine

EXAMPLES = """\b
Examples:
  warren bench
  warren bench --image data --rounds 50 --json
"""

_PAUSE_S = 0.2
"""Between creates: a hot loop hides what an idle machine pays."""


class Measure(NamedTuple):
    """One thing that was timed several times."""

    name: str
    times_ms: list[float]


def bench(
    *,
    image: ImageName = None,
    rounds: Annotated[int, option("N", "Number of measurements of each.", min=1, max=10_000)] = 20,
    engine: EngineName = None,
    allow_bare: AllowBare = False,
    as_json: AsJson = False,
) -> int:
    """Time a fresh sandbox, a warm call, and for comparison a cold Python that imports the same modules.

    `make bench` in the source measures everything, other products included.
    """
    import anyio

    from warren.cli.service.embedded import prepare
    from warren.cli.terminal.signals import run_with_signals

    prepared = prepare(Choice(image=image, engine=engine, allow_bare=allow_bare))
    measures: list[Measure] = []

    async def work(_signals: Signals) -> int:
        measures.extend(await _measure(prepared, rounds))
        return 0

    if code := anyio.run(run_with_signals, work):
        return code
    found = [(name, statistics.median(times_ms), max(times_ms)) for name, times_ms in measures]
    if as_json:
        print_json(
            [
                {"name": name, "median_ms": round(median, 3), "worst_ms": round(worst, 3)}
                for name, median, worst in found
            ]
        )
        return 0
    rows = [(name, f"{median:.2f}", f"{worst:.2f}") for name, median, worst in found]
    print_table(None, ("", "median ms", "worst ms"), rows)
    return 0


async def _measure(prepared: Prepared, rounds: int) -> list[Measure]:
    from anyio import to_thread

    from warren.cli.service.embedded import opened_engine

    cold = await to_thread.run_sync(_cold, prepared.image, min(rounds, 5))
    async with opened_engine(prepared.settings, prepared.choice) as engine:
        fresh, warm = await _sandboxes(engine, prepared.image, rounds)
    return [fresh, warm, *cold]


async def _sandboxes(engine: Engine, image: Image, rounds: int) -> tuple[Measure, Measure]:
    import anyio

    from warren.cli.quick.owner import new_owned_id
    from warren.core.agent.client import AgentClient
    from warren.domain.values import ExecRequest, SandboxSpec, new_id

    fresh: list[float] = []
    warm: list[float] = []
    # One more than asked for: the first also starts what the engine then keeps warm.
    for number in range(rounds + 1):
        start = time.perf_counter()
        handle = await engine.create(SandboxSpec(id=new_owned_id(), image=image))
        try:
            async with AgentClient(await engine.connect(handle)) as agent:
                await agent.run(ExecRequest(id=new_id("exe"), code="1 + 1"))
                first = time.perf_counter()
                await anyio.sleep(_PAUSE_S / 2)
                again = time.perf_counter()
                await agent.run(ExecRequest(id=new_id("exe"), code="1 + 1"))
                if number:
                    fresh.append((first - start) * 1000)
                    warm.append((time.perf_counter() - again) * 1000)
        finally:
            with anyio.CancelScope(shield=True):
                await engine.destroy(handle)
        await anyio.sleep(_PAUSE_S / 2)
    return (
        Measure(f"fresh sandbox of {image.name}, to its first result", fresh),
        Measure("warm call of 1 + 1", warm),
    )


def _cold(image: Image, rounds: int) -> list[Measure]:
    libraries = os.path.join(image.path, "venv", "lib")
    name = next(name for name in os.listdir(libraries) if name.startswith("python3"))
    python = os.path.join(image.interpreter_prefix, "bin", name)
    path = os.path.join(libraries, name, "site-packages")
    measures = [Measure("cold Python that imports nothing", _time(rounds, python, "pass"))]
    if image.preload:
        code = f"import sys; sys.path.append({path!r}); import {', '.join(image.preload)}"
        measures.append(Measure("cold Python that imports the same", _time(rounds, python, code)))
    return measures


def _time(rounds: int, python: str, code: str) -> list[float]:
    def once() -> float:
        start = time.perf_counter()
        subprocess.run([python, "-I", "-c", code], check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        return (time.perf_counter() - start) * 1000

    once()
    return [once() for _ in range(rounds)]
