"""Installing numpy in a fresh sandbox: from the service's cache, and before it is there.

How much a cache saves is a matter of the index behind it. So there are two: the one of this machine, as pip here is
configured, and one at the end of a line of 100 Mbit/s. The promise is for both.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import time
from typing import TYPE_CHECKING

from benchmarks.bench import Bench, median
from benchmarks.served import served
from warren.core.images.catalog import Catalog

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.served import Client
    from warren.domain.values import Image

NAME = "numpy"
LINE = 100_000_000 // 8
"""Bytes a second: an office's line, or a share of a faster one."""


async def measure(bench: Bench) -> None:
    """Install it in turn with an empty cache and with a full one, each time in a new sandbox."""
    # The image that most benchmarks use has it already.
    image = Catalog(bench.image.path.partition("/images/")[0]).build("python")
    with tempfile.TemporaryDirectory(prefix="index-", dir=bench.folder) as folder:
        try:
            fill(folder, image, bench.folder)
        except RuntimeError as error:
            print(f"packages: not measured, {NAME} cannot be installed here: {error}")
            return
        near, near_cached = compare(bench, image)
        with index(folder) as url:
            far, far_cached = compare(bench, image, packages_python_index=url)
    bench.at_most("install a cached numpy in a fresh sandbox", max(near_cached, far_cached), 2.0, "s")
    bench.note("with an empty cache, this machine's index", near, "s")
    bench.at_least("times a cached one, this machine's index", near / near_cached, 3.0, "times")
    bench.note("with an empty cache, an index at 100 Mbit/s", far, "s")
    bench.at_least("times a cached one, an index at 100 Mbit/s", far / far_cached, 3.0, "times")


def compare(bench: Bench, image: Image, **settings: object) -> tuple[float, float]:
    """Return the medians of an empty and of a full cache."""
    empty, full = [], []
    for _ in range(bench.times(5, 2)):
        # Another service each time, with a folder of its own: it has nothing yet.
        with served(image, bench.folder, pool_size=0, **settings) as service:
            client = service.client()
            empty.append(install(client))
            full += [install(client) for _ in range(bench.times(4, 2))]
    return median(empty), median(full)


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


def fill(folder: str, image: Image, data: str) -> None:
    """Make an index of one file, which comes from this machine's index. Raises RuntimeError when that has none."""
    with served(image, data, pool_size=0) as service:
        client = service.client()
        sandbox = client.get("POST", "/api/v1/sandboxes", {"egress": "packages"})["id"]
        path = f"/api/v1/sandboxes/{sandbox}"
        client.get("POST", f"{path}/exec", {"command": f"pip download --no-deps --dest wheels {NAME}"})
        entries = client.get("GET", f"{path}/files?path=wheels")
        if not entries:
            raise RuntimeError("the index has none")
        name = os.path.basename(entries[0]["path"])
        _, wheel = client.ask("GET", f"{path}/files/wheels/{name}")
    pages = os.path.join(folder, "simple", NAME)
    os.makedirs(pages)
    with open(os.path.join(folder, name), "wb") as file:
        file.write(wheel)
    with open(os.path.join(pages, "index.html"), "w", encoding="utf-8") as file:
        file.write(f'<a href="/{name}#sha256={hashlib.sha256(wheel).hexdigest()}">{name}</a>')


@contextlib.contextmanager
def index(folder: str) -> Iterator[str]:
    """Run the server of that index for the length of a block; yields its address."""
    command = [sys.executable, "-m", "benchmarks.package_server", folder, str(LINE)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            yield f"http://127.0.0.1:{server.stdout.readline().strip()}/simple/"
        finally:
            server.communicate()
