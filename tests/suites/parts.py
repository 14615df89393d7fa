"""Which tests `make test` runs, which only `make test-all` does, and in which order.

Only in `make test-all`, because a test of `make test` shows the same or nothing can have changed:

1. On the bare engine what runs on the local engine too, but for tests that are marked `every_engine`.
2. The client without `await`, which is generated, while it and its tests are as `shown.sha256` recorded them.
3. Tests in the images `data` and `office`, which take minutes of processor time to build.
4. Tests that are marked `rest`, each with its reason.

`python tests/suites/parts.py record` records the client after all tests passed; `weigh FILE...` the seconds of files,
from what `pytest --durations 0` printed.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import sys
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest

ROOT = Path(__file__).parents[2]
PARTS = ("all", "first", "rest")
_SHOWN = ROOT / "tests/e2e/sdk/shown.sha256"
_SECONDS = Path(__file__).with_name("seconds.json")
_LARGE_IMAGES = frozenset({"data_image", "office_image"})
_GENERATED = "tests/e2e/sdk/_sync/"
_CLIENT = ("src/warren/sdk", "tests/e2e/sdk")


def select(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep the items of the part that was asked for, those of the longest files first."""
    part = config.getoption("part")
    if part != "all":
        names = {item.nodeid for item in items}
        is_shown = _SHOWN.exists() and _SHOWN.read_text().split()[:1] == [digest_client()]
        rest = {item.nodeid for item in items if _is_rest(item, names, is_shown=is_shown)}
        left_out = [item for item in items if (item.nodeid in rest) != (part == "rest")]
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if (item.nodeid in rest) == (part == "rest")]
    seconds: dict[str, float] = json.loads(_SECONDS.read_text()) if _SECONDS.exists() else {}
    items.sort(key=lambda item: -seconds.get(item.nodeid.partition("::")[0], 0.0))


def _is_rest(item: pytest.Item, names: set[str], *, is_shown: bool) -> bool:
    if item.get_closest_marker("rest") is not None or not _LARGE_IMAGES.isdisjoint(getattr(item, "fixturenames", ())):
        return True
    if item.nodeid.startswith(_GENERATED):
        return is_shown
    # Without root the local engine is not tested, and then the bare one stands for it.
    if "bare" not in item.nodeid.partition("[")[2] or os.geteuid() != 0:
        return False
    name, _, parameters = item.nodeid.partition("[")
    has_twin = f"{name}[{parameters.replace('bare', 'local')}" in names
    return has_twin and item.get_closest_marker("every_engine") is None


def digest_client() -> str:
    """Hash the client library and its tests, with `await` and without."""
    digest = hashlib.sha256()
    for folder in _CLIENT:
        for path in sorted((ROOT / folder).rglob("*.py")):
            content = path.read_bytes()
            digest.update(f"{path.relative_to(ROOT)} {len(content)}\n".encode() + content)
    return digest.hexdigest()


def weigh(reports: list[str]) -> dict[str, float]:
    """Add up the seconds of each file that takes more than five."""
    seconds: dict[str, float] = defaultdict(float)
    for report in reports:
        for amount, name in re.findall(r"^([\d.]+)s (?:setup|call|teardown) +(tests/[^:]+)", report, re.MULTILINE):
            seconds[name] += float(amount)
    longest = sorted(seconds.items(), key=lambda item: -item[1])
    return {name: round(amount) for name, amount in longest if amount >= 5}


if __name__ == "__main__":
    if sys.argv[1] == "record":
        _SHOWN.write_text(f"{digest_client()}\n")
    else:
        found = weigh([Path(name).read_text() for name in sys.argv[2:]])
        _SECONDS.write_text(json.dumps(found, indent=1) + "\n")
