"""The wheel in fresh environments, outside the checkout: the client alone, and the service at its lowest versions."""

from __future__ import annotations

import glob
import os
import signal
import subprocess
import sys
import tomllib
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from warren.domain.values import Image

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
UV = os.path.join(os.path.dirname(sys.executable), "uv")
CLIENT = {"httpx", "websockets"}
OFFLINE = ("Failed to fetch", "error sending request", "dns error", "no versions of")
pytestmark = [
    pytest.mark.timeout(400),
    pytest.mark.rest("builds wheels and fills environments with them: a minute of processor time"),
]


class Installed:
    """An environment with nothing but Warren in it."""

    def __init__(self, folder: Path, wheel: str, extra: str = "", *options: str) -> None:
        self.folder = folder
        _uv("venv", "--quiet", "--python", os.path.join(sys.base_prefix, "bin", "python3"), str(folder / "venv"))
        _uv("pip", "install", "--quiet", "--python", self.path("python"), *options, f"{wheel}{extra}")
        self.env = {"PATH": os.defpath, "HOME": str(folder), "WARREN_DATA_DIR": str(folder / "data")}

    def path(self, program: str) -> str:
        return str(self.folder / "venv" / "bin" / program)

    def run(self, program: str, *arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [self.path(program), *arguments],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            cwd=self.folder,
            env=self.env | env,
            timeout=100,
            check=False,
        )

    def names(self) -> set[str]:
        listed = _uv("pip", "freeze", "--python", self.path("python"))
        return {line.partition("==")[0].partition(" @")[0] for line in listed.splitlines()}


def _uv(*arguments: str) -> str:
    done = subprocess.run([UV, *arguments], capture_output=True, text=True, check=False, timeout=300)
    if done.returncode != 0 and any(words in done.stderr for words in OFFLINE):
        pytest.skip(f"packages cannot be had here: {done.stderr.strip().splitlines()[-1]}")
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = str(tmp_path_factory.mktemp("wheel"))
    _uv("build", "--quiet", "--wheel", "--no-build-isolation", "--python", sys.executable, "-o", folder, ROOT)
    (found,) = glob.glob(f"{folder}/warren_sandbox-*.whl")
    return found


@pytest.fixture
def install(tmp_path: Path, wheel: str) -> Callable[..., Installed]:
    return lambda *how: Installed(tmp_path, wheel, *how)


def test_a_client_needs_two_packages_and_no_service(install: Callable[..., Installed]) -> None:
    client = install()
    with open(os.path.join(ROOT, "pyproject.toml"), "rb") as file:
        extra = tomllib.load(file)["project"]["optional-dependencies"]["server"]
    server = {each.partition(">")[0].partition("[")[0] for each in extra} - {"anyio", "h11"}
    code = (
        "import importlib.metadata as m, re, warren\n"
        "client = warren.Client('http://127.0.0.1:1', retries=0)\n"
        "print(sorted(re.split('[>=]', each)[0] for each in m.requires('warren-sandbox') if 'extra' not in each))\n"
        "try:\n    client.health()\nexcept warren.ServiceUnreachable as exc:\n    print(exc.code)"
    )

    assert client.names() >= CLIENT | {"warren-sandbox"}
    assert client.names() & server == set()
    assert client.run("python", "-c", code).stdout.splitlines() == [str(sorted(CLIENT)), "service_unreachable"]
    assert client.run("warren", "version").stdout.startswith("warren ")
    refused = client.run("warren", "image", "list")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "make setup" in refused.stderr
    assert ".whl[server]'" in refused.stderr
    assert len(refused.stderr.splitlines()) == 1


def test_the_service_works_with_the_lowest_versions_it_allows(
    install: Callable[..., Installed], images_dir: str, python_image: Image
) -> None:
    assert python_image.name == "python"
    server = install("[server]", "--resolution", "lowest-direct")
    os.mkdir(server.folder / "data")
    os.symlink(os.path.join(images_dir, "images"), server.folder / "data" / "images")
    server.env |= {"WARREN_ENGINE": "bare", "WARREN_ALLOW_BARE": "true", "WARREN_IMAGE": "python"}

    assert "Usage: warren run" in server.run("warren", "run", "--help").stdout
    assert "did you mean" in server.run("warren", "imge").stderr.lower()
    ran = server.run("warren", "run", "-c", "print(6 * 7)")
    assert (ran.stdout, ran.stderr) == ("42\n", "")
    with subprocess.Popen(
        [server.path("warren"), "serve", "--port", "0"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=server.folder,
        env=server.env,
    ) as service:
        assert service.stdout is not None
        assert service.stdout.readline().startswith("Warren is at http://127.0.0.1:")
        made = server.run("warren", "sandbox", "create", "--quiet")
        said = server.run("warren", "sandbox", "exec", made.stdout.strip(), "-c", "6 * 7")
        removed = server.run("warren", "sandbox", "rm", made.stdout.strip())
        service.send_signal(signal.SIGTERM)
        service.communicate(timeout=60)

    assert (said.stdout, said.stderr) == ("42\n", "")
    assert removed.returncode == 0, removed.stderr
    assert service.returncode == 0
