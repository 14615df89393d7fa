"""What the original of the ChatUI dialect got wrong, and what happens here instead."""

from __future__ import annotations

import concurrent.futures
import os
from typing import TYPE_CHECKING, Any

import anyio
import httpx
import pytest

from api.chatui import Chatui, connect, given, serve, taken
from api.served import Served, read_events
from warren.bootstrap.app import build_service
from warren.domain.records import Scope
from warren.gateway.app import build_app

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from warren.core.service import Service
    from warren.settings import Settings

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(os.geteuid() != 0, reason="the local engine is tested as root here"),
]


@pytest.fixture(scope="module")
def served(make_settings: Callable[..., Settings]) -> Iterator[Served]:
    yield from serve(make_settings, pytest.skip)


@pytest.fixture
def chatui(served: Served) -> Iterator[Chatui]:
    with Chatui(served) as chatui:
        yield chatui


@pytest.fixture
def native(served: Served, chatui: Chatui) -> Iterator[tuple[httpx.Client, str]]:
    """The container as what it is: a sandbox of the native API."""
    with served.client("ann") as client:
        [found] = client.get("/sandboxes", params={"session_key": f"chatui/{chatui.id}"}).json()["items"]
        yield client, f"/sandboxes/{found['id']}"


def test_a_timeout_keeps_the_session_what_was_written_and_what_was_saved(chatui: Chatui) -> None:
    chatui.run("open('kept', 'w').write('kept')")
    code = "print('so far')\nopen('/tmp/output/part', 'w').write('part')\nimport time\ntime.sleep(10_000)"
    answer = chatui.run(code, timeout=4)

    assert (answer["timed_out"], answer["error_type"]) == (True, "TimeoutError")
    assert answer["error"].startswith("Execution timed out after 4 seconds.")
    assert "Container removed" not in answer["error"]
    assert answer["stdout"] == "so far\n"
    assert taken(answer) == {"part": b"part"}
    assert answer["execution_time"] >= 4
    assert chatui.run("print(open('kept').read())")["stdout"] == "kept\n"


def test_a_program_that_ignores_the_interrupt_is_ended_all_the_same(chatui: Chatui) -> None:
    code = (
        "import signal, time\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\nprint('deaf', flush=True)\n"
        "time.sleep(10_000)"
    )
    answer = chatui.run(code, timeout=4)

    assert (answer["timed_out"], answer["stdout"]) == (True, "deaf\n")
    assert chatui.bash("pgrep -c python || true")["error"] is None


@pytest.mark.parametrize(
    "command", ["sleep 50 & echo bg", "sleep 50 >/dev/null 2>&1 & echo bg", "(setsid sleep 50 &) ; echo bg"]
)
def test_a_background_program_delays_no_call_and_is_gone_afterwards(chatui: Chatui, command: str) -> None:
    answer = chatui.bash(command, timeout=30)

    # Had it waited for the background, its time would have been over.
    assert (answer["stdout"], answer["error"]) == ("bg\n", None)
    assert chatui.bash("pgrep -x sleep")["stdout"] == ""


@pytest.mark.parametrize(
    ("code", "error", "kind"),
    [
        ("import sys; sys.exit('bye')", "bye", "SystemExit"),
        ("import sys; sys.stderr.write('w'); sys.exit(2)", "w", "SystemExit"),
        ("import os, sys; os.write(2, b'KeyError: no'); os._exit(1)", "KeyError: no", "PythonExitError"),
        ("import sys; print('ValueError: so it says', file=sys.stderr)", None, None),
        ("class E(Exception):\n    def __str__(self): return 'a\\nb: c'\nraise E", "<E>", "E"),
        ("raise ExceptionGroup('several', [ValueError('one')])", "<E>", "ExceptionGroup"),
        ("import subprocess\nsubprocess.run(['false'], check=True)", "<E>", "CalledProcessError"),
        ("raise KeyboardInterrupt", "<E>", "KeyboardInterrupt"),
    ],
)
def test_the_kind_of_an_error_is_what_happened_and_not_what_was_written(
    chatui: Chatui, code: str, error: str | None, kind: str | None
) -> None:
    answer = chatui.run(code)

    assert answer["error_type"] == kind, answer
    assert error == "<E>" or answer["error"] == error


def test_what_runs_out_of_memory_is_told_so(chatui: Chatui) -> None:
    answer = chatui.run("x = bytearray(2_000_000_000)\nfor i in range(0, len(x), 4096): x[i] = 1")

    assert answer["error_type"] in {"ProcessSignalError", "MemoryError"}
    assert "memory" in answer["error"].lower()
    assert chatui.run("print(1)")["stdout"] == "1\n"


def test_what_is_asked_wrongly_costs_no_execution(chatui: Chatui) -> None:
    for files in ([{"name": "a", "content": "?"}], [given("a", b""), given("a", b"")], [given("a", bytes(5_242_881))]):
        assert chatui.post("print(1)", files=files).status_code == 400
    assert chatui.post("print(1)", language="perl").status_code == 422
    assert chatui.run("   ")["error_type"] == "ValueError"

    assert chatui.show()["execution_count"] == 0


def test_a_trivial_program_loads_nothing_that_it_does_not_use(chatui: Chatui) -> None:
    assert chatui.run("import sys; print('matplotlib' in sys.modules)")["stdout"] == "False\n"


def test_a_source_of_the_accepted_length_runs_whatever_its_bytes(chatui: Chatui) -> None:
    python = "# " + "é" * 99_980 + "\nprint(1)"
    assert len(python.encode()) > 128 * 1024
    assert chatui.run(python)["stdout"] == "1\n"
    assert chatui.bash("# " + "é" * 99_980 + "\necho 1")["stdout"] == "1\n"
    assert chatui.run("print('" + "x" * 99_990 + "')")["error"] is None


def test_containers_do_not_wait_for_each_other(served: Served, chatui: Chatui) -> None:
    """Each waits for a file that the test makes only when all of them have begun: one after the other, none ends."""
    code = "import os, time\nopen('begun', 'w')\nwhile not os.path.exists('go'): time.sleep(0.02)"
    with Chatui(served) as second, Chatui(served) as third, served.client("ann") as client:
        all_of_them = (chatui, second, third)
        items = [
            client.get("/sandboxes", params={"session_key": f"chatui/{one.id}"}).json()["items"][0]["id"]
            for one in all_of_them
        ]
        with concurrent.futures.ThreadPoolExecutor(3) as threads:
            running = [threads.submit(one.run, code, timeout=60) for one in all_of_them]
            waiting = set(items)
            while waiting:
                waiting = {one for one in waiting if client.head(f"/sandboxes/{one}/files/begun").status_code != 200}
            for one in items:
                assert client.put(f"/sandboxes/{one}/files/go", content=b"").status_code in {201, 204}
            answers = [call.result() for call in running]

    assert [answer["error"] for answer in answers] == [None] * 3


def test_variables_can_be_kept_by_asking_for_it(chatui: Chatui, native: tuple[httpx.Client, str]) -> None:
    client, sandbox = native
    chatui.run("open('data.txt', 'w').write('6')")
    client.post(f"{sandbox}/exec", json={"code": "x = int(open('data.txt').read())"})
    answer = client.post(f"{sandbox}/exec", json={"code": "print(x * 7)"}).json()

    assert answer["stdout"] == "42\n"
    assert chatui.run("print(x)")["error_type"] == "NameError"


def test_output_can_be_followed_by_asking_for_it(native: tuple[httpx.Client, str]) -> None:
    client, sandbox = native
    body = {"code": "print('one')"}
    with client.stream("POST", f"{sandbox}/exec", json=body, headers={"Accept": "text/event-stream"}) as answer:
        assert answer.status_code == 200, answer.read()
        names = [event.name for event in read_events(answer)]

    assert "stdout" in names
    assert names[-1] == "result"


def test_files_are_listed_and_loaded_as_they_are_and_containers_are_listed(
    chatui: Chatui, native: tuple[httpx.Client, str]
) -> None:
    client, sandbox = native
    content = bytes(range(256)) * 4096
    client.put(f"{sandbox}/files/raw.bin", content=content)
    seen = chatui.run("import hashlib; print(len(open('raw.bin', 'rb').read()))")
    listed = client.get("/sandboxes", params={"metadata": "dialect=chatui"})

    assert seen["stdout"] == f"{len(content)}\n"
    assert client.get(f"{sandbox}/files/raw.bin").content == content
    assert listed.status_code == 200
    assert f"chatui/{chatui.id}" in {each["session_key"] for each in listed.json()["items"]}


def test_a_file_that_is_a_link_out_of_the_sandbox_gives_nothing_away(chatui: Chatui) -> None:
    chatui.bash("ln -s /etc/hostname /tmp/output/a; mkdir /tmp/output/d; ln -s / /tmp/output/d/root")
    answer = chatui.bash("ln -s /etc/hostname /tmp/output/a; mkdir /tmp/output/d; ln -s / /tmp/output/d/root")

    assert [(each["name"], each["error"]) for each in answer["files"]] == [
        ("a", "Symlink outputs are not supported"),
        ("d/root", "Symlink outputs are not supported"),
    ]


def test_names_that_are_no_text_are_answered(chatui: Chatui) -> None:
    answer = chatui.run("import os; open(os.fsdecode(b'/tmp/output/\\xff.txt'), 'w').write('x')")

    assert [each["size"] for each in answer["files"]] == [1]


def test_a_container_of_another_dialect_is_none(served: Served, chatui: Chatui) -> None:
    with connect(served) as client:
        made = client.post("/sessions").json()["session_id"]
        try:
            assert client.get(f"/containers/{made}").status_code == 404
            assert client.get(f"/containers/{made:0>64}").status_code == 404
            assert client.get(f"/sessions/{chatui.id}").status_code == 404
        finally:
            client.delete(f"/sessions/{made}")


def test_a_container_outlives_the_service_that_made_it(make_settings: Callable[..., Settings]) -> None:
    settings = make_settings(dialects={"chatui": {"executions_per_container": 2}})

    async def story() -> tuple[dict[str, Any], int]:
        async with build_service(settings) as service:
            _, key = await service.keys.create("ann", scope=Scope.RUN)
            async with _talk(service, settings, key) as client:
                made = (await client.post("/containers")).json()["container_id"]
                asked = {"container_id": made, "code": "open('kept', 'w').write('kept')"}
                await client.post("/execute", json=asked)
        async with build_service(settings) as service, _talk(service, settings, key) as client:
            asked["code"] = "print(open('kept').read())"
            found = (await client.post("/execute", json=asked)).json()
            # The budget is used up, which also removes it.
            return found, (await client.post("/execute", json=asked)).status_code

    found, status = anyio.run(story)
    assert (found["stdout"], status) == ("kept\n", 429)


def _talk(service: Service, settings: Settings, key: str) -> httpx.AsyncClient:
    transport = httpx.ASGITransport(build_app(service, settings), raise_app_exceptions=False)
    return httpx.AsyncClient(
        transport=transport, base_url="http://localhost", headers={"Authorization": f"Bearer {key}"}, timeout=60
    )
