"""Sizes and places of files."""

from __future__ import annotations

import re
import statistics
import warnings

from house.repository import files, read, tracked

HARD, SOFT, MEDIAN = 500, 300, 150


def lengths(under: str) -> dict[str, int]:
    return {name: read(name).count("\n") for name in files(under=under, suffix=".py")}


def test_no_module_is_longer_than_500_lines() -> None:
    long = {name: n for under in ("src/", "tests/", "benchmarks/") for name, n in lengths(under).items() if n > HARD}

    assert long == {}


def test_modules_stay_short_in_the_middle() -> None:
    counts = [n for name, n in lengths("src/").items() if not name.endswith("__init__.py")]

    assert statistics.median(counts) <= MEDIAN
    longish = [name for name, n in lengths("src/").items() if n > SOFT]
    assert len(longish) <= len(counts) // 10, f"more than a tenth of the modules is over {SOFT} lines: {longish}"


def test_the_root_holds_few_files_and_contributing_names_each() -> None:
    root = [name for name in tracked() if "/" not in name]
    contributing = read("CONTRIBUTING.md")

    assert len(root) <= 15
    assert [name for name in root if f"`{name}`" not in contributing] == []


def test_no_file_promises_to_be_finished_later() -> None:
    later = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b")
    python = [name for name in files(suffix=".py") if not name.startswith("tests/house/")]

    assert [name for name in python if later.search(read(name))] == []


def test_no_warnings_filter_hides_anything() -> None:
    hidden = re.compile(r"filterwarnings\(|simplefilter\(")

    assert [name for name in files(under="src/", suffix=".py") if hidden.search(read(name))] == []
    assert warnings.filters
