"""Onyx's dialect as its contract has it: golden files, replayed, and what no file can say."""

from __future__ import annotations

import concurrent.futures
import contextlib
import time
from typing import TYPE_CHECKING

import httpx
import pytest

from api import golden
from api.onyx import Onyx, output, sandboxes_of
from api.served import DEADLINE_S, Served, read_events, wait_for

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from warren.settings import Settings


SANDBOXES = 5
"""As many as a test has at once, even if none of those that ran once is removed yet."""


@pytest.fixture
def onyx(served: Served) -> Iterator[Onyx]:
    with Onyx(served) as client:
        yield client


@pytest.fixture(scope="module")
def small(make_settings: Callable[..., Settings]) -> Iterator[Served]:
    served = Served(
        make_settings(
            dialects={"onyx": {"file_bytes": 2000, "output_bytes": 1000, "file_ttl_s": 5, "max_timeout_ms": 60_000}},
            quota={"executions": 1, "file_bytes": 120_000, "sandboxes": SANDBOXES},
            capacity={"waiting": 0, "wait_s": 0},
        )
    )
    served.start()
    yield served
    served.stop()
    assert served.left == []


@pytest.fixture
def tight(small: Served) -> Served:
    """A service with little room for everything, and nothing in it: what ran once is removed behind its answer."""
    wait_for(lambda: not sandboxes_of(small))
    return small


@pytest.mark.parametrize("name", golden.names("onyx"))
def test_golden(served: Served, name: str) -> None:
    golden.replay(served, "onyx", name)


def test_a_client_sees_that_it_may_use_sessions(served: Served) -> None:
    health = httpx.get(f"{served.url}/health", timeout=DEADLINE_S, trust_env=False).json()

    assert (health["status"], health["message"]) == ("ok", None)
    assert tuple(map(int, health["version"].split("."))) >= (0, 4, 0)


def test_output_comes_while_a_program_runs(onyx: Onyx) -> None:
    code = "import time\nprint('first')\ntime.sleep(60)"
    with onyx.http.stream("POST", "/v1/execute/stream", json={"code": code, "timeout_ms": 60_000}) as answer:
        first = next(read_events(answer))
        assert first.name == "output"
        assert "first\n".startswith(first.data["data"])


def test_a_client_that_leaves_ends_its_program(served: Served, onyx: Onyx) -> None:
    code = "import time\nprint('first')\ntime.sleep(60)"
    others = sandboxes_of(served)
    with onyx.http.stream("POST", "/v1/execute/stream", json={"code": code, "timeout_ms": 60_000}) as answer:
        next(read_events(answer))
    with pytest.raises(httpx.ReadTimeout):
        onyx.http.post("/v1/execute", json={"code": code, "timeout_ms": 60_000}, timeout=1)
    wait_for(lambda: sandboxes_of(served) <= others)


def test_long_output_is_cut_and_marked_and_in_a_stream_cut_without_a_mark(tight: Served) -> None:
    with Onyx(tight) as onyx:
        whole = onyx.execute("import sys\nprint('x' * 5000)\nsys.stderr.write('é' * 400)")
        events = onyx.stream("print('é' * 5000)")
        exact = onyx.execute("print('x' * 999)")
        with onyx.session() as session:
            bash = session.bash("yes | head -c 5000")

    assert whole["stdout"] == "x" * 968 + "\n...[truncated]"
    assert whole["stderr"].startswith("é" * 400)
    assert exact["stdout"] == "x" * 999 + "\n"
    assert bash["stdout"] == "y\n" * 484 + "\n...[truncated]"
    assert output(events) == "é" * 500
    assert events[-1].data["exit_code"] == 0


def test_a_file_that_is_too_large_is_refused(tight: Served) -> None:
    with Onyx(tight) as onyx:
        for size in (2001, 4_000_000):
            answer = onyx.http.post("/v1/files", files={"file": ("a", b"x" * size)})
            assert (answer.status_code, answer.json()) == (
                413,
                {"detail": "File size exceeds maximum of 0.00190735 MB"},
            )
        with onyx.session() as session:
            answer = onyx.http.post(f"{session.path}/files?path=a", files={"file": ("a", b"x" * 2001)})
            assert answer.status_code == 413
            assert onyx.http.get(f"{session.path}/files").json() == {"files": []}
        onyx.upload(b"x" * 2000)


def test_the_default_limit_of_a_file_is_said_as_the_original_says_it(bare: Served) -> None:
    answer = bare.send_raw(
        b"POST /k/%s/v1/files HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
        b"Content-Type: multipart/form-data; boundary=b\r\nContent-Length: 200000000\r\n\r\n--b\r\n"
        % bare.keys["ann"].encode()
    )

    assert answer.startswith(b"HTTP/1.1 413 ")
    assert answer.endswith(b'{"detail":"File size exceeds maximum of 100 MB"}')


def test_a_file_is_gone_when_its_time_is_over(tight: Served) -> None:
    with Onyx(tight) as onyx:
        left = onyx.execute("open('f', 'w').write('1')")["files"][0]["file_id"]
        made = onyx.upload(b"abc")
        assert {made, left} <= {file["file_id"] for file in onyx.files()}
        wait_for(lambda: not onyx.files())
        assert onyx.http.get(f"/v1/files/{made}").status_code == 404
        refused = onyx.http.post("/v1/execute", json={"code": "1", "files": [{"path": "a", "file_id": made}]})
        assert refused.status_code == 404


def test_what_is_too_much_at_once_is_refused_with_a_time_to_come_back(tight: Served) -> None:
    with Onyx(tight) as onyx, concurrent.futures.ThreadPoolExecutor(1) as threads, onyx.session() as session:
        slow = threads.submit(session.bash, "touch begun; until [ -e go ]; do sleep 0.05; done", timeout_ms=60_000)
        with tight.client() as ann:
            wait_for(lambda: "begun" in onyx.http.get(f"{session.path}/files").text)
            for path in ("/v1/execute", "/v1/execute/stream"):
                refused = onyx.http.post(path, json={"code": "1"})
                assert refused.status_code == 429
                assert refused.json()["detail"].startswith("Execution capacity on this replica is saturated")
                assert int(refused.headers["retry-after"]) >= 1
            onyx.http.post(f"{session.path}/files?path=go", files={"file": ("go", b"")})
            assert slow.result()["exit_code"] == 0
            # Those that were made for what was refused are removed behind the answer.
            wait_for(lambda: ann.get("/sandboxes").json()["total"] == 1)


def test_a_session_that_there_is_no_room_for_is_refused_with_a_time_to_come_back(tight: Served) -> None:
    with Onyx(tight) as onyx, contextlib.ExitStack() as sessions:
        for _ in range(SANDBOXES):
            sessions.enter_context(onyx.session())
        refused = onyx.http.post("/v1/sessions", json={})

    assert refused.status_code == 429
    assert int(refused.headers["retry-after"]) >= 1


def test_a_session_ends_when_its_time_is_over_and_lives_longer_when_asked_to(onyx: Onyx) -> None:
    with onyx.session(ttl_seconds=4) as kept:
        before = time.time()
        answer = onyx.http.post(f"{kept.path}/keepalive", json={"ttl_seconds": 600}).json()
        assert before + 600 <= answer["expires_at"] <= time.time() + 600
        with onyx.session(ttl_seconds=1) as short:
            assert before + 1 <= short.expires_at <= time.time() + 1
            wait_for(lambda: onyx.http.post(f"{short.path}/bash", json={"cmd": "true"}).status_code == 404)
        wait_for(lambda: time.time() > kept.expires_at + 1)
        assert kept.bash("echo here")["stdout"] == "here\n"


def test_programs_run_side_by_side(onyx: Onyx) -> None:
    with concurrent.futures.ThreadPoolExecutor(4) as threads:
        running = [threads.submit(onyx.execute, f"open('f', 'w').write('{n}' * 10)\nprint({n})") for n in range(8)]
        done = [each.result() for each in running]

    assert [each["stdout"] for each in done] == [f"{n}\n" for n in range(8)]
    assert [onyx.fetch(each["files"][0]["file_id"]) for each in done] == [b"%d" % n * 10 for n in range(8)]


def test_a_dialect_that_is_open_asks_for_no_key_and_has_files_of_its_own(
    make_settings: Callable[..., Settings],
) -> None:
    served = Served(make_settings(dialects={"onyx": {"open": True}}))
    served.start()
    try:
        with Onyx(served, "anonymous") as anonymous, Onyx(served) as ann:
            file = anonymous.upload(b"abc")
            assert anonymous.execute("open('a').read()", files=[{"path": "a", "file_id": file}])["stdout"] == "'abc'\n"
            assert ann.http.get("/api/v1/sandboxes").json()["items"] == []
    finally:
        served.stop()


def test_the_name_of_a_file_cannot_break_the_answer(onyx: Onyx) -> None:
    file = onyx.upload(b"abc", 'a"b\r\nX-Evil: 1\u00e9\u4e2d.txt')
    answer = onyx.http.get(f"/v1/files/{file}")

    assert answer.content == b"abc"
    assert "x-evil" not in answer.headers
    assert answer.headers["content-disposition"].startswith('attachment; filename="a_22b_0D')


def test_a_session_skips_files_that_are_gone_and_a_program_without_one_does_not(onyx: Onyx) -> None:
    file = onyx.upload(b"abc")
    session = onyx.http.post("/v1/sessions", json={"files": [{"path": "a.txt", "file_id": file}]}).json()["session_id"]
    onyx.http.delete(f"/v1/files/{file}")
    body = {"code": "print(open('a.txt').read())", "files": [{"path": "a.txt", "file_id": file}]}
    ran = onyx.http.post(f"/v1/sessions/{session}/python", json=body)
    refused = onyx.http.post("/v1/execute", json=body)
    bad = onyx.http.post(f"/v1/sessions/{session}/python", json={**body, "files": [{"path": "/x", "file_id": file}]})
    onyx.http.delete(f"/v1/sessions/{session}")

    assert (ran.status_code, ran.json()["stdout"]) == (200, "abc\n")
    assert (refused.status_code, bad.status_code) == (404, 422)


def test_a_file_of_a_session_without_a_path_goes_where_its_name_says(onyx: Onyx) -> None:
    session = onyx.http.post("/v1/sessions", json={}).json()["session_id"]
    address = f"/v1/sessions/{session}/files"
    written = onyx.http.post(address, files={"file": ("deep/b.txt", b"abc")})
    outside = onyx.http.post(address, files={"file": ("../b.txt", b"abc")})
    read = onyx.http.get(f"{address}/deep/b.txt")
    onyx.http.delete(f"/v1/sessions/{session}")

    assert (written.status_code, read.content, outside.status_code) == (204, b"abc", 422)


def test_a_name_is_kept_as_it_was_sent(onyx: Onyx) -> None:
    onyx.upload(b"abc", "100%22.txt")

    assert [each["filename"] for each in onyx.files()] == ["100%22.txt"]


def test_a_program_that_does_not_compile_shows_no_file_of_the_service(onyx: Onyx) -> None:
    stderr = onyx.execute("def f(:\n  pass")["stderr"]

    assert stderr.startswith('  File "')
    assert '__main__.py", line 1\n' in stderr
    assert "ast.py" not in stderr
    assert stderr.endswith("SyntaxError: invalid syntax\n")
