"""Packages in sandboxes: every way to install one, from an index of the test through the service's cache."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from api.chatui import PLENTY, Chatui
from api.package_server import shelving
from api.package_yard import Yard
from api.served import Served
from warren.domain.errors import EngineUnavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from warren.settings import Settings

pytestmark = pytest.mark.root
PAGE = os.path.join(os.path.dirname(__file__), "..", "..", "docs", "howto", "packages.md")


@pytest.fixture(scope="module")
def yard(make_settings: Callable[..., Settings]) -> Iterator[Yard]:
    """One service for all: each test has sandboxes of its own."""
    with shelving() as shelf:
        packages = {"python_index": shelf.url, "npm_registry": shelf.npm_url}
        chatui = {**PLENTY, "allow_pip": True}
        served = Served(make_settings("local", packages=packages, dialects={"chatui": chatui}))
        try:
            served.start()
        except EngineUnavailable as exc:
            pytest.skip(str(exc))
        yard = Yard(served, shelf)
        yield yard
        yard.http.close()
        served.stop()


def test_packages_are_installed_reported_kept_and_found_by_everybody(yard: Yard) -> None:
    yard.shelf.put("needed-thing", "0.5")
    yard.shelf.put("little", "1.0", requires=("needed-thing>=0.1",), script="say-little")
    sandbox = yard.create()
    answer = yard.install(sandbox, "little==1.0")
    shown = answer.json()
    see = "import little, needed_thing; print(little.__version__, needed_thing.__version__)"
    in_kernel = yard.python(sandbox, see)
    in_shell = yard.bash(sandbox, f"say-little; python -c '{see}'; /opt/image/bin/python -c '{see}'")
    yard.http.post(f"/sandboxes/{sandbox}/stop")
    after = yard.bash(sandbox, "say-little")
    again = yard.install(sandbox, "little").json()
    with yard.served.client("adam") as adam:
        rows = adam.get("/audit", params={"action": "packages.install", "sandbox_id": sandbox}).json()

    assert answer.status_code == 200
    assert (shown["ok"], shown["hint"], shown["timed_out"]) == (True, None, False)
    assert shown["packages"] == [{"name": "little", "version": "1.0"}, {"name": "needed-thing", "version": "0.5"}]
    assert "little==1.0" in shown["output"]
    assert in_kernel == "1.0 0.5\n"
    assert in_shell["stdout"] == "little 1.0\n1.0 0.5\n1.0 0.5\n"
    assert (in_shell["files_changed"], after["stdout"]) == ([], "little 1.0\n")
    assert again["packages"] == [{"name": "little", "version": "1.0"}]
    [row, *_] = rows["items"]
    assert row["details"]["packages"] == ["little"]


def test_every_way_of_installing_works_and_lands_in_the_same_place(yard: Yard) -> None:
    names = ["by-pip", "by-module", "by-uv", "by-magic", "by-bang", "by-executable"]
    for name in names:
        yard.shelf.put(name, "1.0")
    sandbox = yard.create()
    same_cell = yard.python(sandbox, "!pip install -q by-bang\nimport by_bang; print(by_bang.__version__)")
    magic = yard.run(sandbox, code="%pip install -q by-magic")
    own = "import subprocess, sys; subprocess.run([sys.executable, '-m', 'pip', 'install', '-q', 'by-executable'])"
    executable = yard.run(sandbox, code=own)
    shell = yard.bash(sandbox, "pip install -q by-pip && python -m pip install -q by-module && uv pip install -q by-uv")
    compiled = yard.bash(sandbox, "find .packages -path '*by_pip*' -name '*.pyc'")["stdout"]
    modules = ", ".join(name.replace("-", "_") for name in names)
    seen = yard.python(sandbox, f"import {modules}; print({{each.__file__.rsplit('/', 2)[0] for each in ({modules})}})")
    listed = yard.bash(sandbox, "uv pip list -q --format json; pip list --format json")["stdout"].splitlines()

    assert same_cell == "1.0\n"
    assert [each["exit_code"] for each in (magic, executable, shell)] == [0, 0, 0], (magic, executable, shell)
    assert seen.count("/workspace/.packages/lib/python") == 1
    # That would take pip longer than all the rest, and most modules are never imported.
    assert compiled == ""
    for line in listed:
        found = {entry["name"].lower() for entry in json.loads(line)}
        # What the image has counts as installed.
        assert {*names, "ipython"} <= found


def test_what_was_downloaded_once_installs_in_any_sandbox_while_the_index_is_away(
    make_settings: Callable[..., Settings],
) -> None:
    with shelving() as shelf:
        path = shelf.put("little", "1.0")
        served = Served(make_settings("local", packages={"python_index": shelf.url, "page_s": 0}))
        try:
            served.start()
        except EngineUnavailable as exc:
            pytest.skip(str(exc))
        yard = Yard(served, shelf)
        first = yard.install(yard.create(), "little").json()
        count = shelf.count(path)
    try:
        second = yard.install(yard.create(), "little").json()
        unseen = yard.install(yard.create(), "unseen").json()
        refused = yard.bash(yard.create(), "curl -s http://elsewhere.example/")
        numbers = yard.http.get(f"{served.url}/metrics").text
    finally:
        yard.http.close()
        served.stop()

    assert (first["ok"], second["ok"], count) == (True, True, 1), (first, second)
    assert second["packages"] == [{"name": "little", "version": "1.0"}]
    assert not unseen["ok"]
    assert "elsewhere.example" in refused["hint"]
    counted = dict(re.findall(r"^(warren_(?:package|egress)_\S+) (\S+)$", numbers, re.MULTILINE))
    for source in ("index", "cache"):
        assert float(counted[f'warren_package_files_total{{source="{source}"}}']) >= 1
    assert float(counted['warren_egress_connections_total{verdict="refused"}']) == 1


def test_a_package_in_place_of_a_preloaded_one_takes_effect(yard: Yard) -> None:
    """Pygments is imported before any sandbox is there."""
    yard.shelf.put("pygments", "0.1")
    sandbox = yard.create()
    see = "import pygments; print(pygments.__version__)"
    before = yard.python(sandbox, see)
    installed = yard.install(sandbox, "pygments==0.1").json()
    told = yard.run(sandbox, code="1 + 1")
    yard.http.post(f"/sandboxes/{sandbox}/kernels/main/restart")
    after = yard.run(sandbox, code=see)
    script = yard.bash(sandbox, f"python -c '{see}'; pip uninstall -q -y pygments; python -c '{see}'")

    assert installed["hint"] == (
        "There was another version of pygments: a kernel that has imported it keeps that until it is restarted."
    )
    assert "restart it to use that" in told["stderr"]
    assert after["stdout"] == "0.1\n"
    assert any("Started cold" in note for note in after["notes"])
    assert script["stdout"] == f"0.1\n{before}"


def test_progress_is_streamed_and_the_result_comes_last(yard: Yard) -> None:
    yard.shelf.put("little-streamed", "1.0")
    sandbox = yard.create()
    body = {"packages": ["little-streamed"], "stream": True}
    with yard.http.stream("POST", f"/sandboxes/{sandbox}/packages", json=body) as answer:
        text = answer.read().decode()
        kind = answer.headers["content-type"]
    events = [block.split("\n") for block in text.strip().split("\n\n") if block.startswith("event:")]
    names = [lines[0].removeprefix("event: ") for lines in events]
    result = json.loads(events[-1][1].removeprefix("data: "))

    assert kind.startswith("text/event-stream")
    assert (names[0], names[-1]) == ("started", "result")
    assert set(names[1:-1]) == {"stderr"}
    assert "Resolved 1 package" in text
    assert "warren-installed" not in text
    assert result["packages"] == [{"name": "little-streamed", "version": "1.0"}]


def test_what_cannot_be_installed_is_a_result_and_what_may_not_be_asked_a_refusal(yard: Yard) -> None:
    sandbox, shut = yard.create(), yard.create("none")
    missing = yard.install(sandbox, "no-such-thing")
    bad = [yard.install(sandbox, name) for name in ("-r x", "x @ http://127.0.0.1/x.whl", "../x", "x; id")]
    empty, odd = yard.install(sandbox), yard.install(sandbox, "x", ecosystem="cargo")
    forbidden = yard.install(shut, "little")
    in_shell = yard.bash(shut, "pip install little")
    with yard.served.client("bob") as bob, yard.served.client("rita") as rita:
        others = [
            each.post(f"/sandboxes/{sandbox}/packages", json={"packages": ["little"]}).status_code
            for each in (bob, rita)
        ]
    yard.shelf.put("slow", "1.0", pad=100_000)
    hold = yard.shelf.held["/files/slow-1.0-py3-none-any.whl"] = type(yard.shelf.middle)()
    late = yard.install(sandbox, "slow", timeout_seconds=1.5).json()
    hold.set()

    assert (missing.status_code, missing.json()["ok"], missing.json()["packages"]) == (200, False, [])
    assert "no-such-thing" in missing.json()["output"]
    assert [each.status_code for each in bad] == [400] * 4
    assert "is no package name" in bad[0].json()["detail"]
    assert (empty.status_code, odd.status_code) == (422, 422)
    assert forbidden.status_code == 403
    assert "set its egress to packages" in forbidden.json()["detail"]
    assert in_shell["exit_code"] != 0
    assert "package index" in in_shell["hint"]
    assert others == [404, 403]
    assert (late["ok"], late["timed_out"]) == (False, True)


def test_the_egress_of_a_running_sandbox_can_be_opened_for_packages(yard: Yard) -> None:
    yard.shelf.put("little-later", "1.0")
    sandbox = yard.create("none")
    before = yard.install(sandbox, "little-later").status_code
    changed = yard.http.patch(f"/sandboxes/{sandbox}", json={"egress": "packages"})
    after = yard.install(sandbox, "little-later").json()

    assert (before, changed.status_code, after["ok"]) == (403, 200, True)


def test_an_environment_of_the_programs_own_is_left_to_it(yard: Yard) -> None:
    yard.shelf.put("by-itself", "1.0")
    sandbox = yard.create()
    done = yard.bash(
        sandbox,
        "python -m venv --without-pip own && . own/bin/activate && uv pip install -q by-itself "
        "&& python -c 'import by_itself; print(by_itself.__file__)'",
    )

    assert done["exit_code"] == 0, done
    assert done["stdout"].startswith("/workspace/own/lib/")


def test_npm_packages_are_installed_too(yard: Yard) -> None:
    if shutil.which("npm") is None:
        pytest.skip("this host has no npm, and the image brings none")
    yard.shelf.put_npm("tiny", "1.2.3")
    yard.shelf.put_npm("@scope/tiny", "2.0.0")
    sandbox = yard.create()
    done = yard.install(sandbox, "tiny@1.2.3", "@scope/tiny", ecosystem="npm").json()
    see = "node -e \"console.log(require('tiny'), require('@scope/tiny'))\""
    seen = yard.bash(sandbox, f"{see}; npm install tiny >/dev/null && {see}")

    assert done["ok"], done
    assert done["packages"] == [{"name": "@scope/tiny", "version": "2.0.0"}, {"name": "tiny", "version": "1.2.3"}]
    assert seen["stdout"] == "1.2.3 2.0.0\n1.2.3 2.0.0\n"


def test_the_page_about_packages_runs_as_it_stands(yard: Yard, tmp_path: Path) -> None:
    if shutil.which("curl") is None:
        pytest.skip("curl is not installed (Debian: apt install curl)")
    yard.shelf.put("little-docs", "1.0")
    with open(PAGE, encoding="utf-8") as file:
        blocks = re.findall(r"^```(bash|python)\n(.*?)^```", file.read(), re.MULTILINE | re.DOTALL)
    env = {
        "PATH": f"{os.path.dirname(sys.executable)}:{os.environ['PATH']}",
        "HOME": str(tmp_path),
        "WARREN_URL": yard.served.url,
        "WARREN_API_KEY": yard.served.keys["ann"],
        "PACKAGE": "little-docs",
    }
    said = {}
    for kind, command in (("bash", ["bash", "-euo", "pipefail", "-c"]), ("python", [sys.executable, "-c"])):
        script = "\n".join(text for each, text in blocks if each == kind)
        done = subprocess.run(
            [*command, script], env=env, cwd=tmp_path, capture_output=True, text=True, timeout=100, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        said[kind] = done.stdout

    assert "little-docs 1.0" in said["bash"]
    assert said["bash"].replace(" ", "").count('"name":"little-docs"') == 1
    assert said["python"].endswith("True ['little-docs 1.0']\n")


def test_chatuis_packages_are_installed_before_the_program_and_stay(yard: Yard) -> None:
    yard.shelf.put("little-chat", "1.0")
    see = "import little_chat; print(little_chat.__version__)"
    with Chatui(yard.served) as chatui:
        first = chatui.run(see, pip_packages=["little-chat==1.0"], timeout=60)
        later = chatui.run(see)
        in_bash = chatui.bash(f"python -c '{see}'")
        failed = chatui.run("print('ran')", pip_packages=["no-such-package-anywhere"])

    assert (first["stdout"], first["stderr"], first["error"]) == ("1.0\n", "", None)
    assert first["install_time"] > 0
    assert (later["stdout"], later["install_time"], in_bash["stdout"]) == ("1.0\n", None, "1.0\n")
    assert (failed["stdout"], failed["error"]) == ("ran\n", "Pip installation failed")
    assert "no-such-package-anywhere" in failed["stderr"]
