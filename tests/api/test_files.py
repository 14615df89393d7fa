"""Files over HTTP: whole, in parts, under conditions, and under any name."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

from api.served import Served

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import httpx

    from warren.settings import Settings

TEXT = b"0123456789" * 10


@pytest.fixture
def files(sandbox: str) -> str:
    """The address of the sandbox's files."""
    return f"/sandboxes/{sandbox}/files"


@pytest.fixture
def etag(ann: httpx.Client, files: str) -> str:
    """The tag of `a.txt`, which has 100 bytes."""
    written = ann.put(f"{files}/a.txt", content=TEXT)
    assert written.status_code == 204, written.text
    return written.headers["etag"]


def code(response: httpx.Response) -> tuple[int, Any]:
    return response.status_code, response.json()["code"]


def test_what_is_written_is_read(ann: httpx.Client, files: str) -> None:
    written = ann.put(f"{files}/deep/down/b.csv", content=b"a,b\n")
    read = ann.get(f"{files}/deep/down/b.csv")
    described = ann.head(f"{files}/deep/down/b.csv")

    assert (written.status_code, written.content) == (204, b"")
    assert (read.status_code, read.content) == (200, b"a,b\n")
    assert read.headers["content-type"] == "text/csv"
    assert read.headers["content-disposition"] == 'attachment; filename="b.csv"'
    assert read.headers["x-content-type-options"] == "nosniff"
    assert "sandbox" in read.headers["content-security-policy"]
    assert written.headers["etag"] == read.headers["etag"] == described.headers["etag"]
    assert read.headers["last-modified"] == described.headers["last-modified"]
    assert (described.status_code, described.content, described.headers["content-length"]) == (200, b"", "4")


def test_what_is_written_is_there_for_programs(ann: httpx.Client, sandbox: str, files: str) -> None:
    ann.put(f"{files}/run.sh", params={"mode": "755"}, content=b"#!/bin/sh\necho it runs\n")

    ran = ann.post(f"/sandboxes/{sandbox}/exec", json={"command": "./run.sh > outputs.txt; cat outputs.txt"}).json()

    assert ran["stdout"] == "it runs\n"
    assert ann.get(f"{files}/outputs.txt").content == b"it runs\n"


def test_a_path_that_ends_like_a_folder_makes_no_file(ann: httpx.Client, files: str) -> None:
    refused = ann.put(f"{files}/charts/", content=b"a file?")

    assert code(refused) == (400, "invalid_request")
    assert "mkdir" in refused.json()["detail"]
    assert ann.get(f"{files}/charts").status_code == 404


def test_an_empty_file_is_a_file(ann: httpx.Client, files: str) -> None:
    assert ann.put(f"{files}/empty").status_code == 204

    assert ann.get(f"{files}/empty").content == b""
    assert code(ann.get(f"{files}/empty", headers={"Range": "bytes=0-"})) == (416, "range_not_satisfiable")


@pytest.mark.parametrize(
    ("asked", "start", "end"),
    [("bytes=0-9", 0, 10), ("bytes=95-", 95, 100), ("bytes=-3", 97, 100), ("bytes=99-500", 99, 100)],
)
@pytest.mark.usefixtures("etag")
def test_a_part_is_a_part(ann: httpx.Client, files: str, asked: str, start: int, end: int) -> None:
    read = ann.get(f"{files}/a.txt", headers={"Range": asked})

    assert (read.status_code, read.content) == (206, TEXT[start:end])
    assert read.headers["content-range"] == f"bytes {start}-{end - 1}/100"
    assert read.headers["content-length"] == str(end - start)


@pytest.mark.usefixtures("etag")
def test_several_parts_or_nonsense_are_the_whole(ann: httpx.Client, files: str) -> None:
    for asked in ("bytes=0-1,5-6", "bytes=9-1", "pages=1"):
        read = ann.get(f"{files}/a.txt", headers={"Range": asked})
        assert (read.status_code, read.content) == (200, TEXT)


@pytest.mark.usefixtures("etag")
def test_a_part_that_is_not_there_says_how_long_the_file_is(ann: httpx.Client, files: str) -> None:
    read = ann.get(f"{files}/a.txt", headers={"Range": "bytes=100-"})

    assert code(read) == (416, "range_not_satisfiable")
    assert read.headers["content-range"] == "bytes */100"


def test_a_download_is_resumed_only_of_the_same_file(ann: httpx.Client, files: str, etag: str) -> None:
    resume = {"Range": "bytes=90-", "If-Range": etag}

    assert ann.get(f"{files}/a.txt", headers=resume).status_code == 206
    ann.put(f"{files}/a.txt", content=b"something else")
    assert ann.get(f"{files}/a.txt", headers=resume).content == b"something else"


def test_who_has_it_already_is_sent_nothing(ann: httpx.Client, files: str, etag: str) -> None:
    date = ann.head(f"{files}/a.txt").headers["last-modified"]

    for headers in ({"If-None-Match": etag}, {"If-None-Match": f'"x", W/{etag}'}, {"If-Modified-Since": date}):
        for method in ("GET", "HEAD"):
            answer = ann.request(method, f"{files}/a.txt", headers=headers)
            assert (answer.status_code, answer.content, answer.headers["etag"]) == (304, b"", etag)
    assert ann.get(f"{files}/a.txt", headers={"If-None-Match": '"x"'}).content == TEXT


def test_a_write_goes_ahead_only_under_its_condition(ann: httpx.Client, files: str, etag: str) -> None:
    at = f"{files}/a.txt"
    past = "Sun, 06 Nov 1994 08:49:37 GMT"

    for headers in ({"If-Match": '"x"'}, {"If-None-Match": "*"}, {"If-Unmodified-Since": past}):
        assert code(ann.put(at, content=b"no", headers=headers)) == (412, "precondition_failed")
        assert code(ann.delete(at, headers=headers)) == (412, "precondition_failed")
    assert code(ann.get(at, headers={"If-Match": '"x"'})) == (412, "precondition_failed")
    assert ann.get(at).content == TEXT
    assert ann.put(at, content=b"yes", headers={"If-Match": etag}).status_code == 204
    assert code(ann.put(at, content=b"no", headers={"If-Match": etag})) == (412, "precondition_failed")
    assert ann.delete(at, headers={"If-Match": "*"}).status_code == 204
    assert code(ann.put(at, content=b"no", headers={"If-Match": "*"})) == (412, "precondition_failed")


def test_who_was_overtaken_while_sending_is_refused_and_nothing_of_the_other_is_lost(
    ann: httpx.Client, files: str, sandbox: str, etag: str
) -> None:
    at = f"{files}/a.txt"

    def send_slowly() -> Iterator[bytes]:
        yield b"slow"
        # Until the service has found that the condition holds, as far as it can say then.
        while not ann.get("/audit", params={"sandbox_id": sandbox, "action": "file.stat"}).json()["items"]:
            pass
        assert ann.put(at, content=b"quick", headers={"If-Match": etag}).status_code == 204
        yield b"ly"

    assert code(ann.put(at, content=send_slowly(), headers={"If-Match": etag})) == (412, "precondition_failed")
    assert ann.get(at).content == b"quick"


def test_of_many_who_make_a_new_file_one_does(served: Served, files: str) -> None:
    def make(number: int) -> int:
        with served.client("ann") as client:
            content = b"%d" % number * 1000
            return client.put(f"{files}/new", content=content, headers={"If-None-Match": "*"}).status_code

    with ThreadPoolExecutor(8) as threads:
        statuses = sorted(threads.map(make, range(8)))

    assert statuses == [204] + [412] * 7


NAMES = {
    "spaces": ("with%20spaces.txt", "with spaces.txt"),
    "unicode": ("%C3%BC%20%E2%82%AC.txt", "ü €.txt"),
    "no UTF-8": ("caf%E9", "caf\ufffd"),
    "percent": ("100%25", "100%"),
    "encoded slash": ("folder%2Ffile", "folder/file"),
    "quotes": ("a%22b'c", "a\"b'c"),
    "line feed": ("a%0Ab%0A", "a\nb\n"),
    "question": ("what%3F%23", "what?#"),
}


@pytest.mark.parametrize("name", NAMES)
def test_a_name_may_be_anything(ann: httpx.Client, files: str, name: str) -> None:
    encoded, shown = NAMES[name]

    assert ann.put(f"{files}/{encoded}", content=name.encode()).status_code == 204
    listed = [entry for entry in ann.get(files, params={"recursive": "true"}).json() if entry["type"] == "file"]

    assert [entry["path"] for entry in listed] == [shown]
    assert ann.get(f"{files}/{encoded}").content == name.encode()
    assert ann.get(f"{files}/{listed[0]['encoded_path']}").content == name.encode()


@pytest.mark.parametrize("path", ["%2e%2e%2fetc%2fpasswd", "%2Fetc%2Fpasswd", "a%00b", "x/%2e%2e/%2e%2e/y", "a" * 5000])
def test_a_path_that_leads_out_is_refused(ann: httpx.Client, files: str, path: str) -> None:
    for method in ("GET", "HEAD", "PUT", "DELETE"):
        assert ann.request(method, f"{files}/{path}").status_code == 400
    makes_sense = len(path) < 100 and "%00" not in path
    wanted = "outside_workspace" if makes_sense else "invalid_request"
    assert ann.get(f"{files}/{path}").json()["code"] == wanted


@pytest.mark.usefixtures("etag")
def test_an_absolute_path_below_the_workspace_is_fine(ann: httpx.Client, files: str) -> None:
    assert ann.get(f"{files}/%2Fworkspace%2Fa.txt").content == TEXT


def test_what_is_missing_is_not_found_and_a_folder_is_no_file(ann: httpx.Client, files: str) -> None:
    ann.put(f"{files}/folder/a", content=b"")

    for method in ("GET", "DELETE"):
        assert code(ann.request(method, f"{files}/nothing")) == (404, "not_found")
    for method in ("GET", "PUT", "DELETE"):
        assert code(ann.request(method, f"{files}/folder")) == (409, "conflict")
    assert ann.head(f"{files}/folder").status_code == 409
    assert ann.delete(f"{files}/folder", params={"recursive": "true"}).status_code == 204
    assert ann.get(files).json() == []


def test_a_write_without_its_folders_can_be_refused(ann: httpx.Client, files: str) -> None:
    assert code(ann.put(f"{files}/no/a", params={"parents": "false"}, content=b"")) == (404, "not_found")
    assert code(ann.put(f"{files}/a", headers={"Content-Range": "bytes 0-1/5"}, content=b"")) == (
        400,
        "invalid_request",
    )
    assert ann.put(f"{files}/a", params={"mode": "999"}, content=b"").status_code == 422


def test_files_are_their_owners(served: Served, files: str, etag: str) -> None:
    with served.client("bob") as bob, served.client("anonymous") as anonymous:
        for method in ("GET", "PUT", "DELETE"):
            assert bob.request(method, f"{files}/a.txt").status_code == 404
            assert anonymous.request(method, f"{files}/a.txt").status_code == 401
        assert bob.get(files).status_code == 404
    with served.client("rita") as rita:
        assert rita.put(f"{files}/a.txt").status_code == 403
    with served.client("ann") as ann:
        assert ann.head(f"{files}/a.txt").headers["etag"] == etag


@pytest.fixture(scope="module")
def narrow(make_settings: Callable[..., Settings]) -> Iterator[httpx.Client]:
    """A client of a service that takes uploads of at most a mebibyte."""
    served = Served(make_settings("bare", serve={"upload_bytes": 1 << 20}))
    served.start()
    with served.client("ann") as client:
        yield client
    served.stop()


def endless(sent: list[int]) -> Iterator[bytes]:
    """Yield a gigabyte, and count what was taken of it."""
    for _ in range(1 << 14):
        sent.append(1 << 16)
        yield bytes(1 << 16)


def test_too_large_an_upload_is_told_so_and_cut_off(narrow: httpx.Client) -> None:
    files = f"/sandboxes/{narrow.post('/sandboxes', json={}).json()['id']}/files"
    sent: list[int] = []

    assert narrow.put(f"{files}/fits", content=bytes(1 << 20)).status_code == 204
    said = narrow.put(f"{files}/large", content=bytes((1 << 20) + 1))
    unsaid = narrow.put(f"{files}/large", content=endless(sent))

    for refused in (said, unsaid):
        assert code(refused) == (413, "too_large")
        assert refused.headers["connection"] == "close"
    assert sum(sent) < 1 << 28
    assert [entry["name"] for entry in narrow.get(files).json()] == ["fits"]


def test_a_refused_upload_need_not_be_sent_to_its_end(served: Served) -> None:
    for who, status in (("anonymous", 401), ("rita", 403), ("ann", 404)):
        sent: list[int] = []
        with served.client(who) as client:
            refused = client.put("/sandboxes/sbx_000000000000/files/a", content=endless(sent))

        assert refused.status_code == status
        assert sum(sent) < 1 << 28


def test_after_a_small_refused_body_the_connection_is_used_again(served: Served) -> None:
    with served.client("ann") as client:
        for _ in range(2):
            refused = client.put("/sandboxes/sbx_000000000000/files/a", content=bytes(1000))

            assert (refused.status_code, refused.headers.get("connection")) == (404, None)


def test_head_says_in_a_header_what_get_says_in_its_body(ann: httpx.Client, shared: str) -> None:
    said, head = ann.get(f"/sandboxes/{shared}/files/none.txt"), ann.head(f"/sandboxes/{shared}/files/none.txt")

    assert head.status_code == said.status_code == 404
    assert head.content == b""
    for name in ("warren-error", "content-type", "content-length"):
        assert head.headers[name] == said.headers[name], name
    assert said.headers["warren-error"] == f"not_found: {said.json()['detail']}"
