"""What a person waits for after the return key: commands beside a bare Python, and beside Docker where it runs."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from typing import TYPE_CHECKING

from anyio import to_thread

from benchmarks.bench import median
from benchmarks.served import served

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from benchmarks.bench import Bench

CODE = "print(1)"
DOCKER_IMAGE = "python:3-slim"
RUN_TIMES, OTHER_TIMES, DOCKER_TIMES = 8.0, 12.0, 0.5


async def measure(bench: Bench) -> None:
    """Time each command in turn, so that a busy moment meets all of them, and take ratios of medians."""
    times = bench.times(40, 8)
    with served(bench.image, bench.folder) as service:
        service.client().get("POST", "/api/v1/sandboxes", {})
        took = await to_thread.run_sync(_measure, service.data, times, ("run", "help", "ps"))
        service.stop()
        # The sandbox runs on, and no service does.
        alone = await to_thread.run_sync(_measure, service.data, times, ("ps",))
    bare = median(took["python"])
    bench.note("a bare `python -c pass`", bare, "ms")
    for name, promised in (("run", RUN_TIMES), ("help", OTHER_TIMES), ("ps", OTHER_TIMES)):
        bench.note(f"`{' '.join(_words(name))}`", median(took[name]), "ms")
        bench.at_most(f"warren {name}: times a bare Python", median(took[name]) / bare, promised, "x")
    ratio = median(alone["ps"]) / median(alone["python"])
    bench.note("`warren ps`, while no service runs", median(alone["ps"]), "ms")
    bench.at_most("warren ps, no service: times a bare Python", ratio, OTHER_TIMES, "x")
    if "docker" in took:
        bench.note("peer: `docker run` of the same", median(took["docker"]), "ms")
        ratio = median(took["run"]) / median(took["docker"])
        bench.at_most("warren run: of what `docker run` takes", ratio, DOCKER_TIMES, "x")
    else:
        print(f"skipped the comparison with docker: it does not run here, or does not have {DOCKER_IMAGE}")


def _measure(data_dir: str, times: int, names: Sequence[str]) -> dict[str, list[float]]:
    env = {"PATH": os.environ["PATH"], "HOME": data_dir, "WARREN_DATA_DIR": data_dir}
    commands = {
        "python": [sys.executable, "-c", "pass"],
        **{name: [os.path.join(os.path.dirname(sys.executable), "warren"), *_words(name)[1:]] for name in names},
    }
    docker = [shutil.which("docker") or "", "run", "--rm", "--network", "none", DOCKER_IMAGE, "python", "-c", CODE]
    if "run" in names and docker[0] and subprocess.run(docker, capture_output=True, check=False).returncode == 0:
        commands["docker"] = docker
    took: dict[str, list[float]] = {name: [] for name in commands}
    for number in range(times + 2):
        for name, argv in commands.items():
            value = _clock(argv, env, data_dir)
            # The first ones write a ticket and fill caches.
            if number >= 2:
                took[name].append(value)
    return took


_COMMANDS: Mapping[str, str] = {"run": f"warren run -c {CODE}", "help": "warren --help", "ps": "warren ps"}


def _words(name: str) -> list[str]:
    return _COMMANDS[name].split()


def _clock(argv: list[str], env: Mapping[str, str], folder: str) -> float:
    began = time.perf_counter()
    subprocess.run(argv, env=env, cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, check=True)
    return (time.perf_counter() - began) * 1000
