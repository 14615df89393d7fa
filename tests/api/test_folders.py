"""Many files over HTTP: lists, searches, moves, forms and archives."""

from __future__ import annotations

import io
import socket
import tarfile
import zipfile
from typing import TYPE_CHECKING, Any

import pytest

from api.served import wait_for

if TYPE_CHECKING:
    import httpx

    from api.served import Served


@pytest.fixture
def home(sandbox: str) -> str:
    """The address of the sandbox."""
    return f"/sandboxes/{sandbox}"


def fill(client: httpx.Client, home: str, *names: str) -> None:
    for name in names:
        assert client.put(f"{home}/files/{name}", content=name.encode()).status_code == 204


def paths(client: httpx.Client, home: str) -> list[str]:
    return [entry["path"] for entry in client.get(f"{home}/files", params={"recursive": "true"}).json()]


def code(response: httpx.Response) -> tuple[int, Any]:
    return response.status_code, response.json()["code"]


def test_a_list_is_a_bare_array_in_order(ann: httpx.Client, home: str) -> None:
    fill(ann, home, "outputs/chart.png", "outputs/data/x.csv", "outputs/.hidden", "a.txt")

    listed = ann.get(f"{home}/files", params={"path": "/workspace/outputs"})

    assert [(entry["name"], entry["type"]) for entry in listed.json()] == [
        (".hidden", "file"),
        ("chart.png", "file"),
        ("data", "directory"),
    ]
    assert listed.json()[1] | {"modified_at": ""} == {
        "name": "chart.png",
        "type": "file",
        "size": 17,
        "path": "outputs/chart.png",
        "modified_at": "",
        "mode": "644",
        "target": None,
        "encoded_path": "outputs/chart.png",
    }
    assert listed.headers["warren-complete"] == "true"


def test_a_list_can_go_deep_leave_out_and_end_early(ann: httpx.Client, home: str) -> None:
    fill(ann, home, "b/.c", "b/d", "a")

    shown = ann.get(f"{home}/files", params={"recursive": "true", "hidden": "false"})
    cut = ann.get(f"{home}/files", params={"recursive": "true", "limit": 2})

    assert [entry["path"] for entry in shown.json()] == ["a", "b", "b/d"]
    assert (len(cut.json()), cut.headers["warren-complete"]) == (2, "false")


def test_a_long_list_is_whole_and_in_order(ann: httpx.Client, home: str) -> None:
    ann.post(f"{home}/exec", json={"command": "mkdir many; cd many; touch $(seq -f 'a file %05g' 3000 | tr ' ' _)"})

    listed = ann.get(f"{home}/files", params={"path": "many"})
    found = ann.post(f"{home}/search", json={"path": "many", "limit": 5000})

    names = [f"a_file_{number:05}" for number in range(1, 3001)]
    assert [entry["name"] for entry in listed.json()] == names
    assert [match["path"] for match in found.json()["items"]] == [f"many/{name}" for name in names]


def test_a_list_of_what_is_no_folder_says_so(ann: httpx.Client, home: str) -> None:
    fill(ann, home, "a")

    asked = {name: ann.get(f"{home}/files", params={"path": name}) for name in ("nothing", "a", "../..", "/etc")}

    assert {name: answer.status_code for name, answer in asked.items()} == {
        "nothing": 404,
        "a": 409,
        "../..": 400,
        "/etc": 400,
    }


def test_a_link_shows_where_it_leads_and_leads_nowhere_else(ann: httpx.Client, home: str) -> None:
    ann.post(f"{home}/exec", json={"command": "echo in > a; ln -s a inside; ln -s /etc/passwd outside"})

    listed = {entry["name"]: entry for entry in ann.get(f"{home}/files").json()}

    assert (listed["outside"]["type"], listed["outside"]["target"]) == ("link", "/etc/passwd")
    assert ann.get(f"{home}/files/inside").content == b"in\n"
    assert code(ann.get(f"{home}/files/outside")) == (400, "outside_workspace")


def test_folders_are_made_and_things_are_moved(ann: httpx.Client, home: str) -> None:
    fill(ann, home, "a", "b")

    assert ann.post(f"{home}/mkdir", json={"path": "x/y"}).json()["path"] == "x/y"
    assert ann.post(f"{home}/mkdir", json={"path": "x/y"}).status_code == 201
    assert code(ann.post(f"{home}/mkdir", json={"path": "x/y", "parents": False})) == (409, "conflict")
    assert ann.post(f"{home}/move", json={"path": "a", "to": "x/a"}).json()["path"] == "x/a"
    assert code(ann.post(f"{home}/move", json={"path": "b", "to": "x/a"})) == (409, "conflict")
    assert ann.post(f"{home}/move", json={"path": "b", "to": "x/a", "overwrite": True}).status_code == 200
    assert code(ann.post(f"{home}/move", json={"path": "x", "to": "new/x"})) == (404, "not_found")
    assert ann.post(f"{home}/move", json={"path": "x", "to": "new/x", "parents": True}).status_code == 200
    assert code(ann.post(f"{home}/move", json={"path": "new", "to": "../out"})) == (400, "outside_workspace")
    assert paths(ann, home) == ["new", "new/x", "new/x/a", "new/x/y"]
    assert ann.get(f"{home}/files/new/x/a").content == b"b"


def test_names_and_lines_are_found(ann: httpx.Client, home: str) -> None:
    ann.put(f"{home}/files/src/a.py", content=b"import os\nprint('hello')\n")
    ann.put(f"{home}/files/src/b.txt", content=b"hello there\n")

    by_name = ann.post(f"{home}/search", json={"name": "*.py"}).json()
    by_text = ann.post(f"{home}/search", json={"text": "hello"}).json()
    by_both = ann.post(f"{home}/search", json={"name": "*.py", "regex": "^imp"}).json()
    cut = ann.post(f"{home}/search", json={"limit": 1}).json()

    assert by_name == {"items": [{"path": "src/a.py", "line": None, "text": None}], "complete": True}
    assert [(match["path"], match["line"]) for match in by_text["items"]] == [("src/a.py", 2), ("src/b.txt", 1)]
    assert by_both["items"] == [{"path": "src/a.py", "line": 1, "text": "import os"}]
    assert (len(cut["items"]), cut["complete"]) == (1, False)
    assert ann.post(f"{home}/search", json={"text": "a", "regex": "b"}).status_code == 422
    assert code(ann.post(f"{home}/search", json={"regex": "("})) == (400, "invalid_request")


def test_a_form_writes_each_of_its_files(ann: httpx.Client, home: str) -> None:
    files: list[tuple[str, Any]] = [
        ("file", ("one.txt", b"1", "text/plain")),
        ("file", ("deep/two.bin", bytes(3 << 20), "application/octet-stream")),
        ("other", ("ünï cödé", b"3")),
    ]

    written = ann.post(f"{home}/files", params={"path": "in", "mode": "600"}, files=files)

    assert written.status_code == 201
    assert [(entry["path"], entry["size"]) for entry in written.json()] == [
        ("in/one.txt", 1),
        ("in/deep/two.bin", 3 << 20),
        ("in/ünï cödé", 1),
    ]
    assert {entry["mode"] for entry in written.json()} == {"600"}
    assert ann.get(f"{home}/files/in/one.txt").content == b"1"


@pytest.mark.parametrize("name", ["../out", "/etc/x", "a/../../b", "a\0b"])
def test_a_form_cannot_write_elsewhere(ann: httpx.Client, home: str, name: str) -> None:
    body = b'--x\r\nContent-Disposition: form-data; name="f"; filename="fine"\r\n\r\n1\r\n'
    body += b'--x\r\nContent-Disposition: form-data; name="f"; filename="%s"\r\n\r\n2\r\n--x--\r\n' % name.encode()

    answer = ann.post(f"{home}/files", content=body, headers={"Content-Type": "multipart/form-data; boundary=x"})

    assert code(answer) == (400, "invalid_request")
    assert "1 before it" in answer.json()["detail"] or "\0" in name
    assert paths(ann, home) in (["fine"], [])


def test_what_is_no_form_is_refused(ann: httpx.Client, home: str) -> None:
    form = "multipart/form-data; boundary=x"

    assert code(ann.post(f"{home}/files", content=b"")) == (400, "invalid_request")
    assert code(ann.post(f"{home}/files", content=b"--x--\r\n", headers={"Content-Type": form})) == (
        400,
        "invalid_request",
    )
    assert code(ann.post(f"{home}/files", data={"a": "b"}, headers={"Content-Type": form})) == (400, "invalid_request")


@pytest.mark.parametrize("kind", ["tar", "tar.gz", "zip"])
def test_a_folder_goes_down_and_up_as_an_archive(ann: httpx.Client, home: str, kind: str) -> None:
    fill(ann, home, "in/a", "in/deep/b")

    packed = ann.get(f"{home}/archive", params={"path": "in", "format": kind})
    unpacked = ann.put(f"{home}/archive", params={"path": "out", "format": kind}, content=packed.content)

    described = ann.head(f"{home}/archive", params={"path": "in", "format": kind})
    assert (described.status_code, described.content) == (200, b"")
    assert described.headers["content-type"] == packed.headers["content-type"]
    assert packed.headers["content-disposition"] == f'attachment; filename="in.{kind}"'
    if kind == "zip":
        names = zipfile.ZipFile(io.BytesIO(packed.content)).namelist()
    else:
        with tarfile.open(fileobj=io.BytesIO(packed.content)) as tar:
            names = tar.getnames()
    assert sorted(name.rstrip("/") for name in names) == ["a", "deep", "deep/b"]
    assert unpacked.json() == {"entries": 3}
    assert ann.get(f"{home}/files/out/deep/b").content == b"in/deep/b"


def test_an_archive_of_nothing_is_not_found(ann: httpx.Client, home: str) -> None:
    assert code(ann.get(f"{home}/archive", params={"path": "nothing"})) == (404, "not_found")
    assert ann.head(f"{home}/archive", params={"path": "nothing"}).status_code == 404
    assert ann.get(f"{home}/archive", params={"format": "rar"}).status_code == 422


def test_a_bad_archive_changes_nothing(ann: httpx.Client, home: str) -> None:
    fill(ann, home, "a")
    hostile = io.BytesIO()
    with tarfile.open(fileobj=hostile, mode="w") as tar:
        for name in ("fine", "../out"):
            tar.addfile(tarfile.TarInfo(name))

    for content in (hostile.getvalue(), b"this is no archive", b""):
        assert code(ann.put(f"{home}/archive", content=content)) == (400, "invalid_request")
    assert paths(ann, home) == ["a"]


def test_words_for_operations_are_names_too(ann: httpx.Client, home: str) -> None:
    fill(ann, home, "move", "search", "mkdir", "archive", "files")

    assert ann.get(f"{home}/files/move").content == b"move"
    assert len(paths(ann, home)) == 5


def test_unpacking_ends_when_the_client_leaves(served: Served, ann: httpx.Client, home: str) -> None:
    """It sends all of a small archive that takes long to unpack, and goes."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz", compresslevel=1) as archive:
        for number in range(40):
            member = tarfile.TarInfo(f"zeros {number}")
            member.size = 8 << 20
            archive.addfile(member, io.BytesIO(bytes(member.size)))
    body = packed.getvalue()
    head = (
        f"PUT /api/v1{home}/archive?format=tar.gz HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n"
        f"Authorization: Bearer {served.keys['ann']}\r\n\r\n"
    )
    with socket.create_connection(("127.0.0.1", served.port)) as connection:
        connection.sendall(head.encode() + body)

    sandbox_id = home.rpartition("/")[2]
    query = {"sandbox_id": sandbox_id, "action": "file.unpack"}
    noted = wait_for(lambda: ann.get("/audit", params=query).json()["items"])
    assert [entry["outcome"] for entry in noted] == ["abandoned"]
    wait_for(lambda: paths(ann, home) == [])
