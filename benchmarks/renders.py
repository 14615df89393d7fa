"""Decks to presentations by a service that is warm, over HTTP: seconds, and the memory of the sandbox that renders.

Without `--decks` it is the deck of `render_deck.py`. With a folder of decks (`NAME/index.html`) those are measured too;
the three that the original's times are known of are compared with those.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import threading
import time
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.bench import Bench, median
from benchmarks.render_deck import SLIDES, make_deck
from benchmarks.served import served
from warren.core.images.catalog import Catalog
from warren.domain.errors import NotFound

if TYPE_CHECKING:
    from benchmarks.served import Client

ORIGINAL_S = {"pitch_en": 6.0, "layouts_mix": 7.0, "reveal_demo": 5.8}
"""ChatUI's gateway with its first renderer, a whole request on a machine of 2 cores, as the survey that this project
began with has measured it (10, 15 and 16 slides; 946 to 1071 MB)."""
QUICKEST_S = min(ORIGINAL_S.values())
OURS = "of fifteen slides"
READY_S = 2.5
"""Between two: until the next browser is ready, and the last one's sandbox gone."""


async def measure(bench: Bench) -> None:
    """Render each deck several times in both ways, always with a browser that is ready."""
    try:
        image = Catalog(bench.image.path.partition("/images/")[0]).get("office")
    except NotFound as error:
        print(f"renders: not measured: {error}")
        return
    decks = {OURS: make_deck(), **_read(bench.decks)}
    with served(image, bench.folder, pool_size=0, render_per_minute=0, render_at_once=1) as service:
        client = service.client()
        for name, html in decks.items():
            _compare(bench, client, name, html)
        bench.at_most("most memory while 15 slides are rendered", _watch(client, service.data, decks[OURS]), 500, "MB")


def _read(folder: str | None) -> dict[str, str]:
    pages = sorted(Path(folder).glob("*/index.html")) if folder else ()
    return {page.parent.name: page.read_text(encoding="utf-8") for page in pages}


def _compare(bench: Bench, client: Client, name: str, html: str) -> None:
    took: dict[str, list[float]] = {"v1": [], "v2": []}
    slides = 0
    for number in range(bench.times(7, 3) + 1):
        for version, seconds in took.items():
            began = time.perf_counter()
            slides = _render(client, html, version)
            # The first finds nothing warm.
            if number:
                seconds.append(time.perf_counter() - began)
            time.sleep(READY_S)
    pictures, editable = median(took["v1"]), median(took["v2"])
    if slides < SLIDES:
        # Of a short deck a slide takes longer: loading and writing are shared by fewer.
        bench.note(f"deck {name}: one of {slides} slides as a picture", pictures / slides, "s")
    else:
        bench.at_most(f"deck {name}: a slide as a picture", pictures / slides, 0.15, "s")
    bench.at_most(f"deck {name}: an editable slide", editable / slides, 0.35, "s")
    if name == OURS or name in ORIGINAL_S:
        original = ORIGINAL_S.get(name, QUICKEST_S)
        bench.at_least(f"deck {name}: against {original} s of the original", original / pictures, 3, "x")


def _render(client: Client, html: str, version: str) -> int:
    """Have a deck rendered; say how many slides it has."""
    status, content = client.ask("POST", "/api/render", {"html": html, "rendering_version": version})
    if status != 200:
        raise RuntimeError(f"a render answered {status}: {content[:400].decode(errors='replace')}")
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        return sum(name.startswith("slides/") for name in archive.namelist())


def _watch(client: Client, data: str, html: str) -> float:
    """Render in both ways and return the most megabytes that one sandbox had, shared pages counted in parts."""
    peak, over = 0.0, threading.Event()

    def look() -> None:
        nonlocal peak
        while not over.wait(0.05):
            peak = max([peak, *_sandboxes_mb(data)])

    watcher = threading.Thread(target=look)
    watcher.start()
    try:
        for version in ("v1", "v2"):
            _render(client, html, version)
    finally:
        over.set()
        watcher.join()
    return peak


def _sandboxes_mb(data: str) -> list[float]:
    totals: dict[str, float] = {}
    for record in Path(data, "local", "sandboxes").glob("*/record.json"):
        with contextlib.suppress(OSError, ValueError, KeyError):
            totals[os.readlink(f"/proc/{json.loads(record.read_bytes())['pid']}/ns/pid")] = 0.0
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError, StopIteration):
            namespace = os.readlink(f"/proc/{pid}/ns/pid")
            if namespace in totals:
                lines = Path("/proc", pid, "smaps_rollup").read_text(encoding="ascii").splitlines()
                totals[namespace] += (
                    int(next(line for line in lines if line.startswith("Pss:")).split()[1]) * 1024 / 1e6
                )
    return list(totals.values())
