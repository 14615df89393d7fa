"""The page at `/docs`: it leads to everything, and each line on it can be pasted."""

from __future__ import annotations

import functools
import html
import os
import re
import shutil
import subprocess
import tarfile
import zipfile
from typing import TYPE_CHECKING

import pytest

from api.terminal_client import open_terminal
from warren.gateway.openapi.problems import explain_codes

if TYPE_CHECKING:
    from pathlib import Path

    from api.served import Served

MISUNDERSTOOD = {"000", "400", "401", "403", "404", "405", "415", "422"}
"""Statuses of requests that were never what they should have been."""


@pytest.fixture
def page(served: Served) -> str:
    with served.client("nobody") as nobody:
        return nobody.get(f"{served.url}/docs").text


def test_the_address_of_the_service_leads_to_its_page(served: Served) -> None:
    with served.client("nobody", follow_redirects=True) as nobody:
        answer = nobody.get(served.url, headers={"Accept": "text/html"})
        lost = nobody.get(f"{served.url}/api/v1/sandbox").json()

    assert answer.url.path == "/docs"
    assert "/docs" in lost["detail"]


def test_the_type_of_every_problem_leads_to_a_row_of_the_page(served: Served, page: str) -> None:
    with served.client("nobody") as nobody:
        where = nobody.get(f"{served.url}/api/v1/sandboxes").json()["type"]

    assert where == "/docs#unauthenticated"
    for code in explain_codes():
        assert f"<tr id='{code}'>" in page, code


def _turn(line: str) -> int:
    """Say when a line has its turn: a file is written first, what is deleted goes last, and then its sandbox."""
    if " -X DELETE " in line:
        return 3 if line.endswith('/$sandbox"') else 2
    return 0 if " -X PUT " in line else 1


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_every_line_of_the_page_can_be_pasted(served: Served, page: str, tmp_path: Path) -> None:
    lines = [html.unescape(each) for each in re.findall(r"<pre>(curl .*?)</pre>", page, re.DOTALL)]
    lines.sort(key=_turn)
    with served.client("adam") as adam:
        sandbox = adam.post("/sandboxes", json={"egress": "packages"}).json()["id"]
        adam.put(f"/sandboxes/{sandbox}/files/draft.txt", content=b"a draft")
        for _ in range(2):
            execution = adam.post(f"/sandboxes/{sandbox}/exec", json={"code": "x = 1"}).json()["execution_id"]
        text = {"name": "kept", "description": "One.", "skill_md_content": "# One"}
        skill = adam.post("/skills", json=text).json()["id"]
        granted = adam.post(f"/sandboxes/{sandbox}/egress/grants", json={"host": "example.org"}).json()["id"]
        deck = {"html": "<p class=slide>x</p>", "background": True}
        render = adam.post("/renders", json=deck).json()["id"]
    with tarfile.open(tmp_path / "file", "w"):
        pass
    with zipfile.ZipFile(tmp_path / "skill.zip", "w") as package:
        package.writestr("SKILL.md", "---\nname: packed\ndescription: Two.\n---\n")
    env = {
        "PATH": os.environ["PATH"],
        "WARREN_URL": served.url,
        "WARREN_API_KEY": served.keys["adam"],
        "sandbox": sandbox,
        "execution": execution,
        "skill": skill,
        "render_id": render,
    }
    examples = {
        '"image": "data"': '"image": "python"',
        "skl_0123456789abcdef01234567": skill,
        "grt_0123456789abcdef01234567": granted,
    }

    for line in lines:
        if line.endswith('/terminals/main"') and " -X DELETE " in line:
            # What was there before ended when the sandbox was stopped.
            with open_terminal(served.port, sandbox, key=served.keys["adam"]):
                pass
        real = functools.reduce(lambda text, each: text.replace(*each), examples.items(), line)
        done = subprocess.run(
            ["bash", "-c", f"{real} -o answer -w '%{{http_code}}'"],
            env=env,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

        assert done.returncode == 0, (line, done.stderr)
        answer = (tmp_path / "answer").read_bytes()
        assert done.stdout not in MISUNDERSTOOD or b"image office is not built yet" in answer, (line, answer)
    with served.client("adam") as adam:
        for item in adam.get("/sandboxes", params={"session_key": "agent-session-abc"}).json()["items"]:
            adam.delete(f"/sandboxes/{item['id']}")
        for item in adam.get("/skills").json()["items"]:
            adam.delete(f"/skills/{item['id']}")
