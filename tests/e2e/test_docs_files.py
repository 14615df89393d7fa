"""The page on moving files, run as it stands there."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest

from api.served import Served
from warren.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from warren.domain.values import Image

PAGE = os.path.join(os.path.dirname(__file__), "..", "..", "docs", "howto", "files.md")


@pytest.fixture
def served(tmp_path_factory: pytest.TempPathFactory, images_dir: str, python_image: Image) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("docs")
    os.symlink(os.path.join(images_dir, "images"), folder / "images")
    values = {"data_dir": str(folder), "image": python_image.name, "engine": "bare", "allow_bare": True}
    served = Served(Settings.model_validate({**values, "pool": {"size": 0}}))
    served.start()
    yield served
    with served.client("ann") as ann:
        for sandbox in ann.get("/sandboxes").json()["items"]:
            ann.delete(f"/sandboxes/{sandbox['id']}")
    served.stop()


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed (Debian: apt install curl)")
def test_the_page_on_files_can_be_followed_to_its_end(served: Served, tmp_path: Path) -> None:
    with open(PAGE, encoding="utf-8") as page:
        script = "\n".join(re.findall(r"^```bash\n(.*?)^```", page.read(), re.MULTILINE | re.DOTALL))

    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script],
        env={"PATH": os.environ["PATH"], "WARREN_URL": served.url, "WARREN_API_KEY": served.keys["ann"]},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert done.returncode == 0, done.stdout + done.stderr
    expected = ("hello world", "\nworld\n", "\n304\n", "in/deep/b.csv", '{"entries":', "deep/b.csv", "in/first.csv")
    assert [text for text in expected if text not in done.stdout] == []
