"""Run the benchmarks: `python -m benchmarks [--quick] [NAME…]`. Exit code 1 when a promise is missed."""

from __future__ import annotations

import argparse
import contextlib
import faulthandler
import importlib
import json
import signal
import sys
import tempfile
from dataclasses import asdict
from typing import TYPE_CHECKING

import anyio

from benchmarks import machine
from benchmarks.bench import Bench, Row
from warren.core.images.catalog import Catalog
from warren.engines.local.engine import LocalEngine
from warren.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from warren.domain.values import Image

DEADLINE_S = 1800
"""How long one benchmark may take: several times what the longest needs."""
NAMES = (
    "cli",
    "create",
    "warm",
    "burst",
    "memory",
    "files",
    "workspace",
    "http_warm",
    "http_create",
    "http_neighbours",
    "http_run",
    "http_idle",
    "http_files",
    "http_dialects",
    "egress",
    "packages",
    "renders",
)


def main(argv: Sequence[str]) -> int:
    """Measure what was asked for, print the table, write the JSON."""
    options = _parse(argv)
    image = Catalog(options.data).build("data", lambda step: print(f"building the image: {step.phase} {step.detail}"))
    facts = machine.describe()
    with tempfile.TemporaryDirectory(prefix="bench-", dir=options.data) as folder:
        rows = anyio.run(_measure, options, image, folder)
    print(_table(rows))
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump({"machine": facts, "rows": [_as_json(row) for row in rows]}, file, indent=1)
            file.write("\n")
    return 0 if all(row.kept for row in rows) else 1


def _parse(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", choices=[*NAMES, []], metavar="NAME", help=f"of: {' '.join(NAMES)}")
    parser.add_argument("--quick", action="store_true", help="fewer repetitions: an impression, not a number")
    parser.add_argument("--json", metavar="FILE", help="also write the rows and the machine's facts there")
    parser.add_argument("--decks", metavar="DIR", help="decks to render besides ours, as DIR/NAME/index.html")
    parser.add_argument("--data", metavar="DIR", default=_default_data(), help="where images are built and kept")
    return parser.parse_args(argv)


def _default_data() -> str:
    return Settings.load().data_dir


async def _measure(options: argparse.Namespace, image: Image, folder: str) -> list[Row]:
    engine = LocalEngine(folder)
    await engine.open()
    bench = Bench(engine, image, folder, options.quick, options.decks)
    try:
        for name in options.names or NAMES:
            print(f"measuring {name} …", flush=True)
            with _deadline(name):
                await importlib.import_module(f"benchmarks.{name}").measure(bench)
    finally:
        async for handle in engine.handles():
            await engine.destroy(handle)
        await engine.retire()
    return bench.rows


@contextlib.contextmanager
def _deadline(name: str) -> Iterator[None]:
    """Raise TimeoutError in a benchmark that does not end, with the stacks of all threads on standard error."""

    def give_up(_number: int, _frame: object) -> None:
        faulthandler.dump_traceback(all_threads=True)
        raise TimeoutError(f"benchmark {name} did not end within {DEADLINE_S} s: its threads are shown above")

    before = signal.signal(signal.SIGALRM, give_up)
    signal.alarm(DEADLINE_S)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def _table(rows: Sequence[Row]) -> str:
    lines = [f"{'':58} {'measured':>10} {'promised':>13} {'margin':>7}"]
    for row in rows:
        sign = ">=" if row.higher_is_better else "<="
        target = "" if row.target is None else f"{sign} {row.target:.{1 if row.target >= 1 else 2}f} {row.unit}"
        margin = "" if row.margin is None else f"{row.margin:.2f}x"
        verdict = "" if row.target is None else "ok" if row.kept else "MISSED"
        lines.append(f"{row.promise:58} {row.measured:7.2f} {row.unit:4} {target:>11} {margin:>7}  {verdict}")
    return "\n".join(lines)


def _as_json(row: Row) -> dict[str, object]:
    return {**asdict(row), "measured": round(row.measured, 3), "kept": row.kept}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
