"""The otari dialect as its contract has it: golden files, replayed, and what no file can say."""

from __future__ import annotations

import concurrent.futures
import os
from typing import TYPE_CHECKING

import anyio
import httpx
import pytest

from api import golden
from api.otari import Otari, connect
from api.served import Served, wait_for

if TYPE_CHECKING:
    from collections.abc import Callable

    from warren.settings import Settings


@pytest.mark.parametrize("name", golden.names("otari"))
def test_golden(served: Served, name: str) -> None:
    golden.replay(served, "otari", name)


def test_calls_of_one_session_wait_for_each_other_and_a_shell_does_not(served: Served) -> None:
    with Otari(served) as otari, concurrent.futures.ThreadPoolExecutor(4) as threads:
        otari.python("n = 0")
        code = "import os, time\nm = n\nwhile not os.path.exists('go'): time.sleep(0.02)\nn = m + 1"
        slow = [threads.submit(otari.python, code) for _ in range(3)]
        beside = threads.submit(otari.bash, "echo beside").result()
        assert not any(call.done() for call in slow)
        otari.bash("touch go")
        for call in slow:
            assert call.result()["return_code"] == 0

        assert beside["stdout"] == "beside\n"
        assert otari.python("print(n)")["stdout"] == "3"


def test_more_sessions_than_there_may_be_are_refused_as_clients_know_it(make_settings: Callable[..., Settings]) -> None:
    served = Served(make_settings(quota={"sandboxes": 1}))
    served.start()
    try:
        with Otari(served) as otari:
            refused = otari.http.post("/sessions")
    finally:
        served.stop()

    assert (refused.status_code, refused.json()) == (503, {"detail": "sandbox holds 1 sessions (max=1)"})
    assert int(refused.headers["retry-after"]) >= 1


def test_a_dialect_that_is_open_asks_for_no_key(make_settings: Callable[..., Settings]) -> None:
    served = Served(make_settings(dialects={"otari": {"open": True}}))
    served.start()
    try:
        with Otari(served, "anonymous") as otari, connect(served) as ann:
            assert otari.python("print(1)")["stdout"] == "1"
            assert ann.get("/api/v1/sandboxes").json()["items"] == []
            assert otari.http.get("/api/v1/sandboxes").status_code == 401
    finally:
        served.stop()


def test_a_dialect_lists_networks_whose_clients_need_no_key(make_settings: Callable[..., Settings]) -> None:
    """Their sandboxes are those of the named principal, which a key may be too; the native API still wants a key."""
    door = {"networks": ("127.0.0.1",), "tenant": "tests", "subject": "ann"}
    served = Served(make_settings(dialects={"otari": door, "onyx": {"networks": ("10.0.0.1",)}}))
    served.start()
    try:
        with Otari(served, "anonymous") as otari, connect(served) as ann:
            assert otari.python("print(1)")["stdout"] == "1"
            assert len(ann.get("/api/v1/sandboxes").json()["items"]) == 1
            forged = {"X-Forwarded-For": "10.0.0.1", "Forwarded": "for=10.0.0.1", "X-Real-IP": "10.0.0.1"}
            body = {"code": "1", "timeout_ms": 1000}
            assert otari.http.post("/v1/execute", json=body, headers=forged).status_code == 401
            assert otari.http.get("/api/v1/sandboxes").status_code == 401
            assert otari.http.post("/sessions", headers={"Origin": served.url}).status_code == 403
    finally:
        served.stop()


@pytest.mark.parametrize("path", [None, "deep/large.bin"])
def test_a_large_file_arrives_whole_wherever_its_path_stands(served: Served, path: str | None) -> None:
    content = os.urandom(5 << 20)
    with Otari(served) as otari:
        shown = otari.upload_path_last(content, path)
        target = path or "large.bin"

        assert (shown.status_code, shown.json()) == (201, {"path": target, "size_bytes": len(content)})
        assert otari.download(target).content == content
        assert otari.bash("ls -A | wc -l")["stdout"] == "1\n"


def test_a_large_file_that_may_not_be_where_it_should_leaves_nothing(served: Served) -> None:
    with Otari(served) as otari:
        otari.bash("mkdir folder")
        for path, status in (("../x", 403), ("folder", 400)):
            assert otari.upload_path_last(bytes(2 << 20), path).status_code == status

        assert otari.bash("ls -A")["stdout"] == "folder\n"


@pytest.mark.parametrize("announced", [True, False])
def test_a_file_over_the_limit_is_refused_and_nothing_of_it_stays(
    make_settings: Callable[..., Settings], announced: bool
) -> None:
    served = Served(make_settings(dialects={"otari": {"upload_bytes": "1M"}}))
    served.start()
    try:
        with Otari(served) as otari:
            size = 3 << 20 if announced else (1 << 20) + 1
            shown = otari.upload(bytes(size), path="f")
            assert (shown.status_code, shown.json()) == (413, {"detail": "file exceeds 1 MB limit"})
            assert otari.upload(bytes(1 << 20), path="g").status_code == 201
            assert otari.bash("ls -A")["stdout"] == "g\n"
    finally:
        served.stop()


@pytest.mark.parametrize(
    ("session", "status"), [("sbx_000000000000000000000000", 404), ("", 413)], ids=["no session", "too large"]
)
def test_a_refusal_reaches_a_client_that_sends_all_before_it_reads(served: Served, session: str, status: int) -> None:
    """As otari's own gateway does, with httpx.AsyncClient."""

    async def upload(path: str) -> httpx.Response:
        key = {"Authorization": f"Bearer {served.keys['ann']}"}
        async with httpx.AsyncClient(base_url=served.url, headers=key, timeout=60, trust_env=False) as client:
            return await client.post(path, files={"file": ("f", bytes(120 << 20))})

    with Otari(served) as otari:
        refused = anyio.run(upload, f"/sessions/{session or otari.id}/files")

    assert refused.status_code == status


def test_health_counts_the_sessions_of_now_and_names_the_limit_that_refuses(
    make_settings: Callable[..., Settings],
) -> None:
    served = Served(make_settings(quota={"active": 3, "sandboxes": 5}, capacity={"active": 9}))
    served.start()
    try:
        with Otari(served) as otari, served.client() as native:
            other = native.post("/sandboxes", json={}).json()["id"]
            before = otari.http.get("/health").json()
            with Otari(served):
                during = otari.http.get("/health").json()
                refused = otari.http.post("/sessions")
            after = otari.http.get("/health").json()
            native.delete(f"/sandboxes/{other}")
    finally:
        served.stop()

    assert [each["session_count"] for each in (before, during, after)] == [1, 2, 1]
    assert before["max_sessions"] == 3
    assert refused.json() == {"detail": "sandbox holds 3 sessions (max=3)"}


def test_a_session_has_the_image_that_its_client_names_and_the_operator_allows(
    make_settings: Callable[..., Settings],
) -> None:
    served = Served(make_settings(image="data", dialects={"otari": {"image": "nowhere", "images": ["them=python"]}}))
    served.start()
    try:
        with connect(served) as http:
            made = http.post("/sessions", json={"image": "them:latest"})
            other = http.post("/sessions", json={"image": "else"})
            http.delete(f"/sessions/{made.json()['session_id']}")
    finally:
        served.stop()

    assert (made.status_code, made.json()["image"]) == (201, "python")
    assert other.status_code == 404
    assert "nowhere" in other.json()["detail"]


def test_a_session_says_where_its_workspace_and_its_library_are(served: Served) -> None:
    if served.settings.engine != "local":
        pytest.skip("the bare engine sets no variables")
    code = "import os; print(os.environ['SANDBOX_WORKSPACE'], os.getcwd(), os.environ['PYTHONPATH'])"
    with Otari(served) as otari:
        done = otari.python(code)
        shell = otari.bash('echo "$SANDBOX_WORKSPACE"')

    assert done["stdout"] == "/workspace /workspace /tmp/.warren/lib"
    assert shell["stdout"] == "/workspace\n"


def test_carets_stand_below_what_they_mean_on_a_last_line_without_a_line_feed(served: Served) -> None:
    with Otari(served) as otari:
        lines = otari.python("x = 0\ny = 1 / x")["stderr"].splitlines()

    assert lines[2:4] == ["    y = 1 / x", "        ~~^~~"]


def test_a_command_longer_than_an_argument_may_be_runs(served: Served) -> None:
    with Otari(served) as otari:
        done = otari.bash("# " + "x" * 150_000 + "\nread line; echo [$line]; echo $((6 * 7)); exit 3")

    assert (done["stdout"], done["return_code"]) == ("[]\n42\n", 3)


def test_a_program_that_uses_too_much_memory_is_said_to(served: Served) -> None:
    if served.settings.engine != "local":
        pytest.skip("the bare engine limits nothing")
    with Otari(served) as otari:
        otari.python("x = 1")
        done = otari.python("print('so far', flush=True)\nb = [bytearray(64 << 20) for _ in range(64)]")

        assert done["return_code"] == -1
        said, runner = done["stderr"].splitlines()
        assert (done["stdout"], runner) == ("so far\n", "runner: killed by sandbox limit (memory)")
        assert said.startswith("sandbox: It needed more memory than the limit of 1.5 GiB")
        assert "variables are as they were" in said
        assert otari.python("print(x)")["stdout"] == "1"


def test_a_client_that_leaves_ends_what_it_started(served: Served) -> None:
    with Otari(served) as otari:
        body = {"tool": "bash_code_execution", "input": {"command": "sleep 40.75"}, "timeout_seconds": 60}
        with pytest.raises(httpx.ReadTimeout):
            otari.http.post(f"/sessions/{otari.id}/exec", json=body, timeout=1)

        wait_for(lambda: otari.bash("pgrep -fc '[s]leep 40.75'")["stdout"] == "0\n")


def test_a_session_is_a_sandbox_of_the_native_api(served: Served) -> None:
    with Otari(served) as otari:
        done = otari.use("code_execution", code="print(1)")
        shown = otari.http.get(f"/api/v1/sandboxes/{otari.id}").json()
        ran = otari.http.get(f"/api/v1/sandboxes/{otari.id}/executions/{done['execution_id']}")

    assert shown["metadata"] == {"dialect": "otari"}
    assert shown["storage"] == "ephemeral"
    assert ran.json()["code"] == "print(1)"
