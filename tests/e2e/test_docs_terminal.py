"""The page on terminals, run as it stands there."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from api.served import Served
from warren.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from warren.domain.values import Image

PAGE = os.path.join(os.path.dirname(__file__), "..", "..", "docs", "howto", "terminal.md")


@pytest.fixture
def served(tmp_path_factory: pytest.TempPathFactory, images_dir: str, python_image: Image) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("docs")
    os.symlink(os.path.join(images_dir, "images"), folder / "images")
    values = {"data_dir": str(folder), "image": python_image.name, "engine": "bare", "allow_bare": True}
    served = Served(Settings.model_validate({**values, "pool": {"size": 0}}))
    served.start()
    yield served
    served.stop()
    assert served.left == []


def test_the_page_on_terminals_can_be_followed_to_its_end(served: Served, tmp_path: Path) -> None:
    with open(PAGE, encoding="utf-8") as page:
        scripts = re.findall(r"^```python\n(.*?)^```", page.read(), re.MULTILINE | re.DOTALL)
    said = ""
    for script in scripts:
        done = subprocess.run(
            [sys.executable, "-W", "error", "-c", script],
            env={"PATH": os.environ["PATH"], "WARREN_URL": served.url, "WARREN_API_KEY": served.keys["ann"]},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        said += done.stdout

    expected = (
        "['build']",
        "made in 100 columns",
        "exit code 0",
        "'created': True",
        "six times seven is 42",
        "exit_code",
    )
    assert [text for text in expected if text not in said] == []
