"""The page on moving from Onyx, followed to its end."""

from __future__ import annotations

import os
import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest

from api.served import Served
from e2e.test_docs_run import BIN, ROOTLESS, Reader, blocks
from warren.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from warren.domain import Image

PAGE = "docs/howto/migrate-from-onyx.md"


@pytest.fixture
def served(tmp_path_factory: pytest.TempPathFactory, images_dir: str, python_image: Image) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("onyx")
    os.symlink(os.path.join(images_dir, "images"), folder / "images")
    values = {"data_dir": str(folder), "image": python_image.name, "pool": {"size": 0}}
    served = Served(Settings.model_validate({**values, "optional_layers": ("memory", "cpu") if ROOTLESS else ()}))
    served.start()
    yield served
    served.stop()
    assert served.left == []
    environ = {"PATH": BIN, "WARREN_DATA_DIR": str(folder)}
    subprocess.run([os.path.join(BIN, "warren"), "stop-engine"], env=environ, check=True)


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed (Debian: apt install curl)")
def test_the_page_on_moving_from_onyx_can_be_followed(served: Served, tmp_path: Path) -> None:
    said = Reader(tmp_path, served).run("\n".join(blocks(PAGE)), WARREN_URL=served.url)

    assert said.splitlines() == ["ok", "8", "A,B", "1,2", "'kept\\n'"]


def test_the_settings_that_the_page_shows_are_settings(tmp_path: Path) -> None:
    for text in blocks(PAGE, "toml"):
        (tmp_path / "warren.toml").write_text(text)
        Settings.load({}, str(tmp_path))
