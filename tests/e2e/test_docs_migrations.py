"""The pages on moving from other services, followed to their ends."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

import pytest

from api.served import Served
from e2e.test_docs_run import ROOTLESS, Reader, blocks, stop_engine
from warren.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from warren.domain.values import Image

CHATUI = "docs/howto/migrate-from-chatui.md"
ONYX = "docs/howto/migrate-from-onyx.md"
OTARI = "docs/howto/migrate-from-otari.md"
needs_curl = pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed (Debian: apt install curl)")


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory, images_dir: str, python_image: Image) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("migrations")
    os.symlink(os.path.join(images_dir, "images"), folder / "images")
    values = {"data_dir": str(folder), "image": python_image.name, "pool": {"size": 0}}
    served = Served(Settings.model_validate({**values, "optional_layers": ("memory", "cpu") if ROOTLESS else ()}))
    served.start()
    yield served
    served.stop()
    assert served.left == []
    stop_engine(folder)


def follow(page: str, served: Served, home: Path) -> str:
    return Reader(home, served).run("\n".join(blocks(page)), WARREN_URL=served.url)


@needs_curl
def test_the_page_on_moving_from_chatui_can_be_followed(served: Served, tmp_path: Path) -> None:
    said = follow(CHATUI, served, tmp_path).splitlines()

    assert said[:4] == ["v1.1.0", "HELLO", "Bash script exited with code 3", "2"]
    assert said[4].startswith('{"status":"success","message":"Container ')
    assert said[5] == "42"


@needs_curl
def test_the_page_on_moving_from_onyx_can_be_followed(served: Served, tmp_path: Path) -> None:
    said = follow(ONYX, served, tmp_path)

    assert said.splitlines() == ["ok", "8", "A,B", "1,2", "'kept\\n'"]


@needs_curl
def test_the_page_on_moving_from_otari_can_be_followed(served: Served, tmp_path: Path) -> None:
    said = follow(OTARI, served, tmp_path)

    assert "'stdout': '42'" in said
    assert '{"path":"data/in.csv","size_bytes":4}' in said
    assert said.rstrip().endswith("a,b")


@pytest.mark.parametrize("page", [ONYX, OTARI])
def test_the_settings_that_a_page_shows_are_settings(page: str, tmp_path: Path) -> None:
    for text in blocks(page, "toml"):
        (tmp_path / "warren.toml").write_text(text)
        Settings.load({}, str(tmp_path))
