"""One run in a sandbox of its own."""

from __future__ import annotations

import base64
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from api.served import wait_for

if TYPE_CHECKING:
    import httpx

    from api.served import Served

pytestmark = pytest.mark.every_engine


def test_files_go_in_and_changed_files_come_out(ann: httpx.Client) -> None:
    files = [
        {"path": "in/text.txt", "text": "größe"},
        {"path": "in/raw.bin", "base64": base64.b64encode(b"\xff\0").decode()},
    ]
    code = "import os\nos.remove('in/raw.bin')\nopen('out.txt', 'w').write(open('in/text.txt').read().upper())"

    told = ann.post("/run", json={"code": code, "files": files})

    assert told.status_code == 200
    assert (told.json()["exit_code"], told.json()["files_complete"]) == (0, True)
    assert [
        (file["path"], file["action"], base64.b64decode(file["base64"]).decode()) for file in told.json()["files"]
    ] == [("out.txt", "created", "GRÖSSE")]
    assert {change["path"] for change in told.json()["files_changed"]} == {"in/raw.bin", "out.txt"}


def test_a_script_ends_with_its_own_exit_code(ann: httpx.Client) -> None:
    script = ann.post("/run", json={"code": "raise SystemExit(7)", "fresh": True}).json()
    cell = ann.post("/run", json={"code": "6 * 7"}).json()
    shell = ann.post("/run", json={"command": "exit 9"}).json()

    assert (script["exit_code"], script["kind"], script["state"]) == (7, "script", "none")
    assert cell["displays"][0]["data"] == {"text/plain": "42"}
    assert shell["exit_code"] == 9


def test_nothing_stays_of_it(served: Served) -> None:
    with served.client("bob") as bob:
        first = bob.post("/run", json={"command": "touch mark; ls"}).json()
        second = bob.post("/run", json={"command": "ls"}).json()
        wait_for(lambda: bob.get("/sandboxes").json()["total"] == 0)

    assert (first["stdout"], second["stdout"]) == ("mark\n", "")
    assert first["sandbox_id"] != second["sandbox_id"]


def test_many_at_once(served: Served) -> None:
    with served.client("ann") as ann, ThreadPoolExecutor(8) as threads:
        told = list(threads.map(lambda i: ann.post("/run", json={"code": f"print({i} * 2)"}).json(), range(16)))

    assert [each["stdout"] for each in told] == [f"{i * 2}\n" for i in range(16)]


def test_a_file_has_one_content_and_stays_inside(ann: httpx.Client) -> None:
    both = ann.post("/run", json={"command": "ls", "files": [{"path": "a", "text": "x", "base64": "eA=="}]})
    outside = ann.post("/run", json={"command": "ls", "files": [{"path": "../a", "text": "x"}]})
    unknown = ann.post("/run", json={"command": "ls", "files": [{"path": "a", "content": "x"}]})

    assert (both.status_code, outside.status_code, unknown.status_code) == (400, 400, 422)


def test_what_does_not_fit_is_left_out(ann: httpx.Client) -> None:
    told = ann.post("/run", json={"command": "printf 12345 > a; printf 12 > b", "max_bytes": 3}).json()

    assert [file["path"] for file in told["files"]] == ["b"]
    assert told["files_complete"] is False
    assert len(told["files_changed"]) == 2
