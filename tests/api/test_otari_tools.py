"""Tools of the client's own: code in a session calls them, with no network and without the token."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from api.callback_server import TOKEN, CallbackServer, calling_back
from api.conftest import ROOTLESS
from api.served import Served
from warren.bootstrap.app import build_service
from warren.core.callbacks.callbacks import NewCallbacks
from warren.core.executions.executions import NewExecution
from warren.core.sandboxes.sandboxes import NewSandbox
from warren.domain.errors import EngineUnavailable
from warren.domain.records import Caller, Principal
from warren.domain.values import Echo

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import httpx

    from warren.settings import Settings

LISTED = {"otari": {"callback_hosts": ["127.0.0.1"]}}


@pytest.fixture(scope="module", params=["bare", pytest.param("local", marks=pytest.mark.root)])
def calling(request: pytest.FixtureRequest, make_settings: Callable[..., Settings]) -> Iterator[Served]:
    """A service that may call back to this machine."""
    if request.param == "local" and ROOTLESS:
        pytest.skip("the local engine is tested as root here")
    served = Served(make_settings(request.param, dialects=LISTED))
    try:
        served.start()
    except EngineUnavailable as exc:
        pytest.skip(str(exc))
    yield served
    served.stop()
    assert served.left == []


@pytest.fixture
def client(calling: Served) -> Iterator[httpx.Client]:
    with calling.client("ann") as client:
        client.base_url = calling.url
        yield client


@pytest.fixture
def session(client: httpx.Client) -> Iterator[str]:
    made = client.post("/sessions").json()["session_id"]
    yield made
    client.delete(f"/sessions/{made}")


@pytest.fixture
def server() -> Iterator[CallbackServer]:
    with calling_back() as server:
        yield server


def register(client: httpx.Client, session: str, server: CallbackServer, *names: str, **more: Any) -> dict[str, Any]:
    body = {"callback_url": server.url, "token": TOKEN, "tools": [{"name": name} for name in names], **more}
    answer = client.post(f"/sessions/{session}/programmatic-tools/register", json=body)
    assert answer.status_code == 200, answer.text
    shown: dict[str, Any] = answer.json()
    return shown


def run(client: httpx.Client, session: str, code: str, tool: str = "code_execution") -> dict[str, Any]:
    given = {"code": code} if tool == "code_execution" else {"command": code}
    answer = client.post(f"/sessions/{session}/exec", json={"tool": tool, "input": given})
    assert answer.status_code == 200, answer.text
    content: dict[str, Any] = answer.json()["result_block"]["content"]
    return content


def test_code_calls_a_tool_and_gets_its_answer(client: httpx.Client, session: str, server: CallbackServer) -> None:
    run(client, session, "x = 1")
    shown = register(client, session, server, "look_up")
    done = run(client, session, "from _platform_tools import look_up\nprint(look_up(q='a', n=[1, 2]), look_up.__doc__)")

    assert shown["tool_count"] == 1
    assert shown["stub_path"].startswith("/")
    assert shown["stub_path"].endswith("/_platform_tools.py")
    assert run(client, session, "ls -A", "bash_code_execution")["stdout"] == ""
    assert done["stdout"] == "{'echo': {'q': 'a', 'n': [1, 2]}} Programmatic tool look_up.", done
    (asked,) = server.asked
    assert set(asked) == {"call_id", "name", "input"}
    assert (len(asked["call_id"]), asked["name"], asked["input"]) == (32, "look_up", {"q": "a", "n": [1, 2]})
    assert server.headers[0]["authorization"] == f"Bearer {TOKEN}"
    assert server.headers[0]["content-type"] == "application/json"
    assert server.headers[0]["host"] == f"127.0.0.1:{server.port}"


def test_tools_are_found_by_a_new_kernel_by_scripts_and_from_any_folder(
    client: httpx.Client, session: str, server: CallbackServer
) -> None:
    register(client, session, server, "look_up")
    code = "from _platform_tools import look_up; print(look_up(n=1))"
    assert run(client, session, f"import os; os.makedirs('deep'); os.chdir('deep'); {code}")["return_code"] == 0
    done = run(client, session, f'cd / && python -c "{code}"', "bash_code_execution")

    assert done["stdout"] == "{'echo': {'n': 1}}\n", done


def test_what_fails_is_a_tool_error_that_says_how(client: httpx.Client, session: str, server: CallbackServer) -> None:
    register(client, session, server, "fail", "broken", "away", "large", "words")
    code = """
import _platform_tools as tools
for name in ("fail", "broken", "away", "large", "words"):
    try:
        print(getattr(tools, name)())
    except tools.ToolError as error:
        print(name, "|", error)
"""
    said = run(client, session, code)["stdout"].splitlines()

    assert said == [
        "fail | it went wrong",
        "broken | tool 'broken' failed: HTTP 500",
        "away | tool 'away' failed: HTTP 302",
        "large | tool 'large' unreachable: its answer has more than 8 MiB",
        "words | tool 'words' transport error: its answer is no JSON",
    ]


def test_a_server_that_is_gone_is_unreachable(client: httpx.Client, session: str) -> None:
    with calling_back() as server:
        register(client, session, server, "look_up")
    done = run(client, session, "import _platform_tools as t\ntry: t.look_up()\nexcept t.ToolError as e: print(e)")

    assert done["stdout"] == "tool 'look_up' unreachable: connection refused or impossible"


def test_a_server_that_says_nothing_is_waited_for_as_long_as_was_said(
    client: httpx.Client, session: str, server: CallbackServer
) -> None:
    register(client, session, server, "slow", timeout_seconds=1)
    done = run(client, session, "import _platform_tools as t\ntry: t.slow()\nexcept t.ToolError as e: print(e)")

    assert done["stdout"] == "tool 'slow' unreachable: timed out"


def test_the_token_and_the_address_are_nowhere_inside(
    client: httpx.Client, session: str, server: CallbackServer
) -> None:
    register(client, session, server, "look_up")
    run(client, session, "from _platform_tools import look_up; look_up()")
    look = f"env | grep -c {TOKEN}; cat /proc/*/environ 2>/dev/null | grep -ac {TOKEN}"
    found = run(client, session, f"{look}; grep -raE '{TOKEN}|in-the-address' . | wc -l", "bash_code_execution")

    assert found["stdout"].split() == ["0", "0", "0"]


def test_tools_that_come_later_are_found_by_a_module_that_was_imported_before(
    client: httpx.Client, session: str, server: CallbackServer
) -> None:
    register(client, session, server, "first")
    run(client, session, "import _platform_tools as tools; first = tools.first")
    register(client, session, server, "second")
    done = run(client, session, "from _platform_tools import second\nprint(second(n=2))\nfirst()")

    assert done["stdout"] == "{'echo': {'n': 2}}"
    assert "ToolError: tool 'first' failed: HTTP 404" in done["stderr"]


def test_a_program_that_is_ended_ends_its_call_too(client: httpx.Client, session: str, server: CallbackServer) -> None:
    register(client, session, server, "slow")
    body = {"tool": "code_execution", "input": {"code": "import _platform_tools as t; t.slow()"}, "timeout_seconds": 1}
    done = client.post(f"/sessions/{session}/exec", json=body).json()
    after = run(client, session, "print('free')")

    assert done["timed_out"]
    assert after["stdout"] == "free"


def test_words_about_a_tool_cannot_become_code(client: httpx.Client, session: str, server: CallbackServer) -> None:
    doc = "\"\"\"' \\\n'); open('pwned', 'w') #@PORT@ \u2028\ud7ff"
    register(client, session, server, tools=[{"name": "look_up", "doc": doc}])
    done = run(client, session, f"import os, _platform_tools as t\nprint(t.look_up.__doc__ == {doc!r}, os.listdir())")

    assert done["stdout"].startswith("True"), done
    assert "pwned" not in done["stdout"]


def test_calls_by_hand_are_taken_for_what_they_are(client: httpx.Client, session: str, server: CallbackServer) -> None:
    register(client, session, server, "look_up")
    code = """
import re, socket, _platform_tools as tools
port = int(re.search(r"_build\\((\\d+),", open(tools.__file__).read())[1])
def say(data):
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.sendall(data)
        connection.shutdown(socket.SHUT_WR) if not data.endswith(b"\\n") else None
        return b"".join(iter(lambda: connection.recv(65536), b""))
call = '{"name": "look_up", "call_id": "%s", "input": %s}\\n'
for data in (
    b"no json\\n", b"[]\\n", b"[" * 5000 + b"\\n", b"{}\\n", b"", b"half a line",
    (call % ("x", "{}")).encode(), (call % ("0" * 32, "[]")).encode(),
    (call % ("0" * 32, '{}, "name": "other"')).encode(),
    b'{"name": "other", "call_id": "' + b"0" * 32 + b'", "input": {}}\\n', b"x" * (5 << 20) + b"\\n",
):
    try:
        print(say(data))
    except OSError as error:
        print(type(error).__name__)
print(tools.look_up(n=1))
"""
    done = run(client, session, code)

    assert done["return_code"] == 0, done
    assert done["stdout"].splitlines()[-1] == "{'echo': {'n': 1}}"
    assert [asked["name"] for asked in server.asked] == ["look_up"]
    assert run(client, session, "print(1)")["stdout"] == "1"


def test_more_calls_than_a_session_may_make_are_refused_inside(
    client: httpx.Client, session: str, server: CallbackServer
) -> None:
    register(client, session, server, "look_up")
    # Several at once: one after the other, a slow machine would make no more than there may be.
    code = """
import threading
from _platform_tools import look_up, ToolError
refused = []
def ask():
    while not refused:
        try:
            look_up()
        except ToolError as error:
            refused.append(str(error))
threads = [threading.Thread(target=ask) for _ in range(4)]
for each in threads: each.start()
for each in threads: each.join()
print(*sorted(set(refused)))
"""
    refused = run(client, session, code)["stdout"]

    assert refused == "tool 'look_up' unreachable: too many calls in a short time: wait a moment"
    assert len(server.asked) >= 300


@pytest.mark.parametrize(
    ("change", "detail"),
    [
        ({"callback_url": ""}, "callback_url must not be empty"),
        ({"token": ""}, "token must not be empty"),
        ({"tools": [{"name": "1x"}]}, "invalid tool name: '1x'"),
        ({"tools": [{"name": "class"}]}, "tool name shadows Python keyword: 'class'"),
        ({"tools": [{"name": "x"}, {"name": "x"}]}, "duplicate tool name: 'x'"),
        ({"callback_url": "ftp://example.com/"}, "callback_url must be an http or https address with a host"),
        ({"callback_url": "http:///x"}, "callback_url must be an http or https address with a host"),
        ({"callback_url": "http://a b/"}, "callback_url must be an http or https address with a host"),
        (
            {"callback_url": "http://me:it@example.com/"},
            "callback_url must not hold a user or password: the token says who calls",
        ),
        ({"token": "a\nb"}, "token must be printable ASCII, as a header can hold it"),
    ],
)
def test_what_cannot_be_registered_is_refused_in_a_sentence(
    client: httpx.Client, session: str, change: dict[str, Any], detail: str
) -> None:
    body = {"callback_url": "http://127.0.0.1:9/", "token": "t", "tools": [], **change}
    answer = client.post(f"/sessions/{session}/programmatic-tools/register", json=body)

    assert (answer.status_code, answer.json()) == (422, {"detail": detail})


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1",
        "localhost",
        "[::1]",
        "[::ffff:127.0.0.1]",
        "169.254.169.254",
        "10.1.2.3",
        "0.0.0.0",
        "[64:ff9b::7f00:1]",
    ],
)
def test_hosts_that_are_not_public_are_not_called_unless_they_are_listed(bare: Served, host: str) -> None:
    with bare.client("ann") as client:
        client.base_url = bare.url
        session = client.post("/sessions").json()["session_id"]
        body = {"callback_url": f"http://{host}/", "token": "t", "tools": []}
        answer = client.post(f"/sessions/{session}/programmatic-tools/register", json=body)
        client.delete(f"/sessions/{session}")

    assert answer.status_code == 422
    assert "callback_hosts" in answer.json()["detail"]


def test_no_caller_registers_tools_for_another_owners_session(
    calling: Served, session: str, server: CallbackServer
) -> None:
    body = {"callback_url": server.url, "token": TOKEN, "tools": []}
    with calling.client("bob") as bob:
        bob.base_url = calling.url
        answer = bob.post(f"/sessions/{session}/programmatic-tools/register", json=body)

    assert (answer.status_code, answer.json()) == (404, {"detail": session})


def test_registrations_outlive_the_service(make_settings: Callable[..., Settings], server: CallbackServer) -> None:
    settings = make_settings("bare", dialects=LISTED)
    caller = Caller(principal=Principal(subject="ann"), request_id="req")
    code = "from _platform_tools import look_up\nprint(look_up(n=3))"

    async def story() -> bytes:
        async with build_service(settings) as service:
            sandbox, _ = await service.sandboxes.create(caller, NewSandbox())
            new = NewCallbacks(url=server.url, token=TOKEN, tools={"look_up": ""}, timeout_s=10)
            await service.callbacks.register(caller, sandbox.id, new)
        async with build_service(settings) as service:
            try:
                done = await service.executions.run(caller, sandbox.id, NewExecution(code=code, echo=Echo.NONE))
            finally:
                await service.sandboxes.delete(caller, sandbox.id)
            assert await service.store.callbacks() == ()
        assert done.result is not None
        return done.result.stdout + done.result.stderr

    assert anyio.run(story) == b"{'echo': {'n': 3}}\n"
    kept = os.path.join(settings.data_dir, "warren.db")
    assert os.stat(kept).st_mode & 0o077 == 0
