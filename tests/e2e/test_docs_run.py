"""The examples of the documents, run as they stand there, in the order in which a reader would."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import tomllib
from typing import TYPE_CHECKING

import pytest

from api.served import Served
from e2e import forked
from warren.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from warren.domain.values import Image

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
ROOTLESS = os.geteuid() != 0
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def blocks(page: str, language: str = "bash") -> list[str]:
    with open(os.path.join(ROOT, page), encoding="utf-8") as file:
        return [text for kind, text in BLOCK.findall(file.read()) if kind == language]


def stop_engine(folder: Path) -> None:
    """End the engine of a data folder, as an operator does."""
    env = {"PATH": os.defpath, "WARREN_DATA_DIR": str(folder)}
    done = forked.run(["stop-engine"], env=env, cwd=folder, timeout=100, text=True)
    assert done.returncode == 0, done.stderr


class Reader:
    """A reader with a shell, a data folder that has the images, and a service."""

    def __init__(self, home: Path, served: Served) -> None:
        self.home = home
        self.env = {
            "PATH": forked.search_path(),
            "HOME": str(home),
            "WARREN_DATA_DIR": served.settings.data_dir,
            "WARREN_IMAGE": "python",
            "UV_SYSTEM_CERTS": "true",
            **({"WARREN_OPTIONAL_LAYERS": "memory,cpu"} if ROOTLESS else {}),
        }

    def run(self, script: str, **env: str) -> str:
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", script.replace(".venv/bin/", "")],
            env=self.env | env,
            cwd=self.home,
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def serve(self, script: str) -> None:
        """Start a service, on a folder and a port of its own, and end it as soon as it says where it is."""
        folder = self.home / "data"
        folder.mkdir()
        os.symlink(os.path.join(self.env["WARREN_DATA_DIR"], "images"), folder / "images")
        env = self.env | {"WARREN_DATA_DIR": str(folder), "WARREN_SERVE_PORT": "0", "WARREN_POOL_SIZE": "0"}
        argv = ["bash", "-c", script.replace(".venv/bin/", "").replace("warren serve", "exec warren serve")]
        with subprocess.Popen(argv, env=env, cwd=self.home, stdout=subprocess.PIPE, text=True) as service:
            assert service.stdout is not None
            assert service.stdout.readline().startswith("Warren is at http://127.0.0.1:")
            service.terminate()
            assert service.wait(60) == 0
        self.run("warren stop-engine", WARREN_DATA_DIR=str(folder))


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory, images_dir: str, python_image: Image) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("docs")
    os.symlink(os.path.join(images_dir, "images"), folder / "images")
    served = Served(
        Settings.model_validate(
            {
                "data_dir": str(folder),
                "image": python_image.name,
                "optional_layers": ("memory", "cpu") if ROOTLESS else (),
                "pool": {"size": 0},
            }
        )
    )
    served.start()
    yield served
    served.stop()
    stop_engine(folder)


@pytest.fixture
def reader(tmp_path: Path, served: Served) -> Reader:
    return Reader(tmp_path, served)


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed (Debian: apt install curl)")
def test_the_tutorial_can_be_followed_to_its_end(reader: Reader, served: Served) -> None:
    said = reader.run(
        "\n".join(blocks("docs/tutorial/first-service.md")), WARREN_URL=served.url, WARREN_API_KEY=served.keys["adam"]
    )

    lines = said.splitlines()
    expected = [
        "out.txt",
        "42",
        "timeout",
        "41",
        "1009650",
        "event: result",
        "done",
        "stopped",
        "one",
        "sandbox.delete",
    ]
    assert [text for text in expected if not any(text in line for line in lines)] == []


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed (Debian: apt install curl)")
def test_the_quick_start_of_the_readme_with_curl_works(reader: Reader, served: Served) -> None:
    (script,) = (text for text in blocks("README.md") if "curl" in text)

    said = reader.run(script, WARREN_URL=served.url, WARREN_API_KEY=served.keys["adam"])

    assert json.loads(said)["stdout"] == "42\n"


def test_the_page_on_running_the_service_works(reader: Reader) -> None:
    said = reader.run("\n".join(blocks("docs/howto/run-the-service.md")) + "cat audit.jsonl")

    assert "key.revoke" in said


def test_the_settings_that_the_pages_show_are_settings(tmp_path: Path) -> None:
    for text in blocks("docs/howto/run-the-service.md", "toml"):
        (tmp_path / "warren.toml").write_text(text)
        Settings.load({}, str(tmp_path))


@pytest.mark.rest("builds an image as the page says: half a minute of processor time")
def test_the_page_on_images_makes_an_image(reader: Reader, tmp_path: Path) -> None:
    (spec,) = blocks("docs/howto/images.md", "toml")
    folder = tmp_path / "my-images"
    folder.mkdir()
    (folder / f"{tomllib.loads(spec)['name']}.toml").write_text(spec)
    (tmp_path / "packages.txt").write_text("shapely\n")

    said = reader.run(
        "\n".join(blocks("docs/howto/images.md")) + "warren image remove geo", WARREN_IMAGE_DIRS="./my-images"
    )

    assert "POINT (1 2)" in said


def test_the_page_for_ordinary_users_works_where_its_tools_are(reader: Reader, tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text("print('ran')\n")
    ran = 0
    for script in blocks("docs/howto/ordinary-user.md"):
        if "loginctl" in script or "systemctl" in script:
            print("not run, because it changes the machine:", script)
            continue
        if "warren serve" in script:
            reader.serve(script)
        else:
            assert reader.run(script) == "ran\n"
        ran += 1
    assert ran
