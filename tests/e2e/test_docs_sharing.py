"""The pages on servers in sandboxes and on shared files, run as they stand there."""

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

PAGES = os.path.join(os.path.dirname(__file__), "..", "..", "docs", "howto")

pytestmark = [
    pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed (Debian: apt install curl)"),
    pytest.mark.skipif(os.geteuid() != 0, reason="the pages use port 5000, which is free only in a sandbox"),
]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory, images_dir: str, python_image: Image) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("docs")
    os.symlink(os.path.join(images_dir, "images"), folder / "images")
    served = Served(Settings.model_validate({"data_dir": str(folder), "image": python_image.name, "pool": {"size": 0}}))
    served.start()
    yield served
    with served.client("ann") as ann:
        for sandbox in ann.get("/sandboxes").json()["items"]:
            ann.delete(f"/sandboxes/{sandbox['id']}")
    served.stop()


def follow(served: Served, page: str, folder: Path) -> str:
    with open(os.path.join(PAGES, page), encoding="utf-8") as file:
        script = "\n".join(re.findall(r"^```bash\n(.*?)^```", file.read(), re.MULTILINE | re.DOTALL))
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script],
        env={
            "PATH": os.environ["PATH"],
            "WARREN_URL": served.url,
            "WARREN_API_KEY": served.keys["ann"],
            "WARREN_DATA_DIR": served.settings.data_dir,
        },
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_page_on_servers_can_be_followed_to_its_end(served: Served, tmp_path: Path) -> None:
    assert follow(served, "preview-a-server.md", tmp_path).count("Hello from inside") == 2
    assert len((tmp_path / "page.html").read_text()) > 10
    with open(os.path.join(served.settings.data_dir, "links.key")) as keys:
        assert len(keys.read().splitlines()) == 2


def test_the_settings_that_the_page_shows_are_settings(tmp_path: Path) -> None:
    with open(os.path.join(PAGES, "preview-a-server.md"), encoding="utf-8") as file:
        (text,) = re.findall(r"^```toml\n(.*?)^```", file.read(), re.MULTILINE | re.DOTALL)
    (tmp_path / "warren.toml").write_text(text)

    assert Settings.load({}, str(tmp_path)).serve.ports_url == "https://*.apps.example.com"


def test_the_page_on_sharing_files_can_be_followed_to_its_end(served: Served, tmp_path: Path) -> None:
    said = follow(served, "share-files.md", tmp_path)

    assert "a,b" in said
    assert "413" in said
