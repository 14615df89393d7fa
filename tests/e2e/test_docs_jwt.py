"""The page on tokens, followed as it stands there."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest

from api.served import Served
from e2e import forked
from warren.bootstrap.app import build_policy, build_tokens
from warren.settings import Settings

if TYPE_CHECKING:
    from pathlib import Path

    from warren.domain.values import Image

PAGE = os.path.join(os.path.dirname(__file__), "..", "..", "docs", "howto", "sign-in-with-jwt.md")


def blocks(language: str) -> list[str]:
    with open(PAGE, encoding="utf-8") as file:
        return re.findall(rf"^```{language}\n(.*?)^```", file.read(), re.MULTILINE | re.DOTALL)


def run(folder: Path, script: str, **environ: str) -> str:
    environ = {"PATH": forked.search_path()} | environ
    argv = ["bash", "-euo", "pipefail", "-c", script]
    done = subprocess.run(argv, env=environ, cwd=folder, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_settings_of_the_page_are_settings_that_work(tmp_path: Path) -> None:
    provider, tenants = blocks("toml")
    (tmp_path / "warren.toml").write_text(provider + tenants)
    settings = Settings.load({}, str(tmp_path))

    assert build_tokens(settings.jwt) is not None
    assert build_policy(settings).ceiling_of("acme").holding.active == 500


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed (Debian: apt install curl)")
def test_a_token_of_an_application_of_ones_own_runs_code(tmp_path: Path, images_dir: str, python_image: Image) -> None:
    prepare, use = blocks("bash")
    (sign,) = blocks("python")
    said = run(tmp_path, f"{prepare}\nenv | grep ^WARREN_")
    environ = dict(line.split("=", 1) for line in said.splitlines())
    os.symlink(os.path.join(images_dir, "images"), tmp_path / "images")
    environ |= {"WARREN_DATA_DIR": str(tmp_path), "WARREN_ENGINE": "bare", "WARREN_ALLOW_BARE": "true"}
    settings = Settings.load(environ | {"WARREN_IMAGE": python_image.name, "WARREN_POOL_SIZE": "0"}, str(tmp_path))
    (tmp_path / "sign.py").write_text(sign)
    served = Served(settings)
    served.start()
    try:
        token = run(tmp_path, "python3 sign.py").strip()
        ran, audit = run(tmp_path, use, TOKEN=token, WARREN_URL=served.url).splitlines()
    finally:
        served.stop()

    assert json.loads(ran)["stdout"] == "42\n"
    (row,) = json.loads(audit)["items"]
    assert (row["tenant"], row["subject"]) == ("acme", "jwt:ann")
