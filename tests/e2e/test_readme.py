"""The README's commands, run as they stand there, with the image that it promises."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from warren.core.images import Catalog

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BIN = os.path.dirname(sys.executable)
INTERACTIVE = ".venv/bin/warren shell"


def commands() -> list[str]:
    with open(os.path.join(ROOT, "README.md"), encoding="utf-8") as file:
        lines = file.read().splitlines()
    found = [re.sub(r"\s+#.*", "", line) for line in lines if line.startswith(".venv/bin/warren")]
    return [line for line in found if line != INTERACTIVE]


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory: pytest.TempPathFactory, images_dir: str) -> Iterator[Path]:
    """A data folder that has the `data` image."""
    Catalog(images_dir).build("data")
    folder = tmp_path_factory.mktemp("readme")
    os.symlink(os.path.join(images_dir, "images"), folder / "images")
    yield folder
    run(".venv/bin/warren stop-engine", folder)


def run(command: str, data_dir: Path) -> subprocess.CompletedProcess[str]:
    env = {"PATH": os.defpath, "HOME": str(data_dir), "WARREN_DATA_DIR": str(data_dir)}
    if os.geteuid() != 0:
        env["WARREN_OPTIONAL_LAYERS"] = "memory,cpu"
    argv = ["bash", "-c", command.replace(".venv/bin", BIN)]
    return subprocess.run(argv, env=env, cwd=data_dir, capture_output=True, text=True, timeout=100, check=False)


@pytest.mark.timeout(400)
@pytest.mark.parametrize("command", commands())
def test_a_command_of_the_readme_works_as_it_stands_there(command: str, data_dir: Path) -> None:
    (data_dir / "script.py").write_text("print('from the script')\n")

    done = run(command, data_dir)

    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    expected = {"pd.Series": "2.0\n", "--json": '"from the script\\n"', "script.py": "from the script\n"}
    assert next((text for part, text in expected.items() if part in command), "") in done.stdout
