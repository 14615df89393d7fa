"""The pages on MCP and on moving from onit-sandbox, followed to their end."""

from __future__ import annotations

import json
import os
import shutil
from typing import TYPE_CHECKING

import pytest

from api.served import Served
from e2e.serving import RunningService
from e2e.test_docs_run import Reader, blocks
from warren.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from warren.domain.values import Image

PAGES = ("docs/howto/mcp.md", "docs/howto/migrate-from-onit.md")
BARE = {"WARREN_ENGINE": "bare", "WARREN_ALLOW_BARE": "true"}

needs_curl = pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed (Debian: apt install curl)")


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory, images_dir: str, python_image: Image) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("mcp")
    os.symlink(os.path.join(images_dir, "images"), folder / "images")
    values = {"data_dir": str(folder), "image": python_image.name, "pool": {"size": 0}}
    served = Served(Settings.model_validate(values | {"engine": "bare", "allow_bare": True}))
    served.start()
    yield served
    served.stop()


@needs_curl
def test_the_page_on_mcp_can_be_followed(served: Served, tmp_path: Path, images_dir: str) -> None:
    alone, with_service = blocks(PAGES[0])
    place = RunningService(tmp_path / "data", images_dir, "bare")
    said = Reader(tmp_path, served).run(alone, **BARE, WARREN_DATA_DIR=str(place.folder))
    assert json.loads(said.splitlines()[-1])["result"]["content"][0]["text"] == "42"
    assert place.rows() == {}
    place.clear()

    said = Reader(tmp_path, served).run(with_service, **BARE, WARREN_URL=served.url)
    assert '"serverInfo"' in said


@needs_curl
def test_the_page_on_moving_from_onit_can_be_followed(served: Served, tmp_path: Path) -> None:
    said = Reader(tmp_path, served).run("\n".join(blocks(PAGES[1])), **BARE, WARREN_URL=served.url)

    assert f"url: {served.url}/k/wrn_" in said
    assert '"stdout": "42\\n"' in said
    assert '"answer"' in said
    assert "\nrunning\nTrue\n" in said
    assert "pids = 100" in said


def test_the_configurations_that_the_pages_show_can_be_read(tmp_path: Path) -> None:
    for page in ("README.md", *PAGES):
        for text in blocks(page, "toml"):
            (tmp_path / "warren.toml").write_text(text)
            Settings.load({}, str(tmp_path))
        for text in blocks(page, "json"):
            (server,) = json.loads(text)["mcpServers"].values()
            assert server.get("command", "").endswith("warren") or server["url"].endswith("/mcp")
