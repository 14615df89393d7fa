"""Slides: `python -m benchmarks.slides --decks DIR` renders decks with ours and public converters, and scores them.

A deck is a folder with an index.html whose `.slide` elements are 1920 x 1080 px. What measures and what is measured is
installed by pip and npm into a private folder (`.cache/slides`), never into ours; Chromium, LibreOffice and poppler
must be there. The metrics are those of `slides_score.py`. One run, one machine, one table.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

HERE = Path(__file__).parent
TOOLS = HERE.parent / ".cache" / "slides"
PYTHON = TOOLS / "venv" / "bin" / "python"
NEEDED = ("playwright", "python-pptx", "pillow", "numpy", "scipy", "scikit-image", "pymupdf", "html-to-pptx==0.4.1")
BUNDLE = "dom-to-pptx@2.1.2"
CONVERTERS = ("warren_editable", "warren_pictures", "html_to_pptx", "dom_to_pptx", "pdf_libreoffice")
TIMEOUT_S = 300


def main(argv: Sequence[str]) -> int:
    """Render, score, print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.slides", description=__doc__)
    parser.add_argument("--decks", type=Path, required=True)
    parser.add_argument("--out", type=Path, default=TOOLS / "out")
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(CONVERTERS))
    options = parser.parse_args(argv)
    if missing := [tool for tool in ("chromium", "soffice", "pdftoppm") if not shutil.which(tool)]:
        print(f"not installed: {', '.join(missing)}", file=sys.stderr)
        return 1
    install()
    names = options.names or CONVERTERS
    decks = sorted(page.parent for page in options.decks.resolve().glob("*/index.html"))
    measure("reference", options.out, *map(str, decks))
    for name in names:
        runs = {deck.name: convert(name, deck, options.out) for deck in decks}
        (options.out / name / "run.json").write_text(json.dumps(runs))
    return measure("score", options.out, *names)


def install() -> None:
    """Bring what measures and what is measured, once."""
    if not PYTHON.exists():
        subprocess.run([sys.executable, "-m", "venv", str(TOOLS / "venv")], check=True)
        subprocess.run([str(PYTHON), "-m", "pip", "install", "--quiet", *NEEDED], check=True)
    if not (TOOLS / "node_modules").exists():
        subprocess.run(["npm", "install", "--no-audit", "--no-fund", "--prefix", str(TOOLS), BUNDLE], check=True)


def measure(task: str, out: Path, *names: str) -> int:
    """Run a part of `slides_score.py` with its own packages."""
    return subprocess.run([str(PYTHON), str(HERE / "slides_score.py"), task, str(out), *names], check=False).returncode


def command(name: str, page: Path, target: Path) -> list[str]:
    """Return the program that makes `target` of `page`."""
    if name.startswith("warren"):
        job = [sys.executable, "-m", "warren.render.job", "--html", str(page), "--out", str(target)]
        return [*job, "--editable"] if name == "warren_editable" else job
    return [str(PYTHON), str(HERE / "slides_peers.py"), name, str(page), str(target), str(TOOLS)]


def convert(name: str, deck: Path, out: Path) -> dict[str, float | int | str]:
    """Convert one deck in a new process: how long it took, cold, and the most memory its processes shared."""
    target = out / name / f"{deck.name}.pptx"
    target.parent.mkdir(parents=True, exist_ok=True)
    target.unlink(missing_ok=True)
    started = time.monotonic()
    process = subprocess.Popen(
        command(name, deck / "index.html", target), stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    peak = Peak(process.pid)
    peak.start()
    try:
        said = process.communicate(timeout=TIMEOUT_S)[0].decode(errors="replace")
    except subprocess.TimeoutExpired:
        process.kill()
        said = f"no end after {TIMEOUT_S} s"
    seconds = time.monotonic() - started
    peak.stop()
    size = target.stat().st_size if target.exists() else 0
    print(f"{name} {deck.name}: {seconds:.1f} s, {peak.megabytes:.0f} MB", flush=True)
    return {"s": seconds, "mb": peak.megabytes, "kb": size / 1024, "said": "" if size else said[-400:]}


class Peak(threading.Thread):
    """Watches the proportional memory of a process and its children."""

    def __init__(self, pid: int) -> None:
        super().__init__(daemon=True)
        self.megabytes = 0.0
        self._pid = pid
        self._over = threading.Event()

    def run(self) -> None:
        """Look ten times a second."""
        while not self._over.wait(0.1):
            self.megabytes = max(self.megabytes, sum(_memory(pid) for pid in _family(self._pid)) / 1024)

    def stop(self) -> None:
        """Stop watching."""
        self._over.set()
        self.join()


def _family(pid: int) -> set[int]:
    parents: dict[int, int] = {}
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            with contextlib.suppress(OSError, ValueError, IndexError):
                parents[int(entry.name)] = int(Path(entry.path, "stat").read_text().rsplit(")", 1)[1].split()[1])
    found = {pid}
    while grown := {child for child, parent in parents.items() if parent in found} - found:
        found |= grown
    return found


def _memory(pid: int) -> int:
    with contextlib.suppress(OSError, ValueError):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1])
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
