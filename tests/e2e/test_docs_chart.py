"""The tutorial that ends with a chart, followed to its end."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from warren.core.images.catalog import Catalog

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from e2e.serving import RunningService

PAGE = os.path.join(os.path.dirname(__file__), "..", "..", "docs", "tutorial", "first-chart.md")
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
PNG = b"\x89PNG\r\n\x1a\n"


@pytest.mark.timeout(400)
def test_the_tutorial_ends_with_a_chart(serve: Callable[..., RunningService], images_dir: str, tmp_path: Path) -> None:
    Catalog(images_dir).build("data")
    service = serve("local", image="data").start()
    with open(PAGE, encoding="utf-8") as file:
        program = "\n".join(BLOCK.findall(file.read()))

    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        env={"WARREN_URL": f"http://127.0.0.1:{service.port}", "WARREN_API_KEY": service.key},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    service.stop()

    assert done.returncode == 0, done.stderr
    said = done.stdout.splitlines()
    assert "DataFrame" in said[0]
    assert "error - KeyError" in said
    assert any(line.startswith("timeout - ") for line in said)
    assert "12250" in said
    assert re.fullmatch(r"a chart of [\d,]+ bytes is in visitors.png", said[-1])
    assert (tmp_path / "visitors.png").read_bytes().startswith(PNG)
