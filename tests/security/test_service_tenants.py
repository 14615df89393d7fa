"""The service against those who have a key: other people's things, and more of everything than is theirs."""

from __future__ import annotations

import contextlib
import re
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from e2e.serving import DEADLINE_S, create, wait_until
from security.attacked import UPGRADE, Attacked, attacked, fill
from warren.domain.records import Scope
from warren.gateway.app import OPERATIONS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

NONE = {"sandbox_id": "sbx_" + "0" * 24, "execution_id": "exe_" + "0" * 24}
BODIES: dict[str, dict[str, Any]] = {
    "exec": {"code": "1"},
    "kernels": {"name": "other"},
    "fork": {"to": "other"},
    "move": {"path": "a", "to": "b"},
    "mkdir": {"path": "a"},
    "links": {"kind": "file", "path": "main"},
    "skills": {"skill_ids": ["0" * 32]},
    "grants": {"host": "example.org"},
    "secrets": {"name": "TOKEN", "value": "12345678", "hosts": ["example.org"]},
    "packages": {"packages": ["six"]},
    "renders": {"html": "<p class=slide>x</p>"},
}
EXECUTIONS = 8


@pytest.fixture(autouse=True)
def unharmed() -> None:
    """No sandbox is attacked here: the service is."""


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory, images_dir: str, python_image: object) -> Iterator[Attacked]:
    assert python_image is not None
    with attacked(tmp_path_factory.mktemp("tenants"), images_dir, quota_executions=EXECUTIONS) as target:
        yield target


@pytest.fixture(scope="module")
def ann(target: Attacked) -> Iterator[httpx.Client]:
    with target.client("ann") as client:
        yield client


@pytest.fixture(scope="module")
def things(ann: httpx.Client) -> Iterator[dict[str, str]]:
    """A sandbox of ann's with a secret, a file, and something that runs and takes input."""
    sandbox_id = create(ann, env={"TOKEN": "hunter2"}, session_key="mine", metadata={"for": "ann"})
    assert ann.put(f"/sandboxes/{sandbox_id}/files/main", content=b"hunter2").status_code == 204
    running = ann.post(
        f"/sandboxes/{sandbox_id}/exec", json={"command": "cat", "background": True, "stdin_open": True}
    ).json()
    yield {"sandbox_id": sandbox_id, "execution_id": running["execution_id"]}
    ann.delete(f"/sandboxes/{sandbox_id}")


def ask(client: httpx.Client, method: str, path: str, ids: dict[str, str]) -> httpx.Response:
    """Ask for an operation with a body that it takes."""
    last = path.rpartition("/")[2]
    more: dict[str, Any] = {}
    if method == "PUT" or last == "stdin":
        more["content"] = b"x"
    elif (method, last) == ("POST", "files"):
        more["files"] = {"file": ("a", b"x")}
    elif method in {"POST", "PATCH"}:
        more["json"] = BODIES.get(last, {})
    if method == "WEBSOCKET":
        method, more = "GET", {"headers": UPGRADE}
    answer = client.request(method.replace("*", "GET"), fill(path, **ids), **more)
    return answer if answer.status_code != 426 else ask(client, "WEBSOCKET", path, ids)


def plain(answer: httpx.Response, ids: dict[str, str]) -> tuple[int, str, list[str]]:
    """Everything that an answer says, but for the ids that were asked for."""
    text = re.sub(r"req_\w+", "", answer.text)
    for each in ids.values():
        text = text.replace(each, "")
    return answer.status_code, text, sorted(answer.headers)


@pytest.mark.parametrize("who", ["bob", "carl"])
def test_other_peoples_things_are_as_if_there_were_none(target: Attacked, things: dict[str, str], who: str) -> None:
    found = 0
    with target.client(who) as client:
        for method, path in target.operations():
            if "{sandbox_id}" in path:
                real, made_up = ask(client, method, path, things), ask(client, method, path, NONE)
                # The address of a port without its last slash leads to the one with it, for every caller.
                assert real.status_code == (308 if path.endswith("{port}") else 404), (method, path, real.text)
                assert plain(real, things) == plain(made_up, NONE), (method, path)
                found += 1
        assert client.get("/sandboxes").json()["total"] == 0
        assert client.get("/sandboxes", params={"session_key": "mine"}).json()["total"] == 0
        assert client.get("/sandboxes", params={"everybody": True}).status_code == 403
        assert client.get("/audit", params={"sandbox_id": things["sandbox_id"]}).json()["items"] != []
        rows = client.get("/audit", params={"limit": 1000}).json()["items"]
        assert {row["subject"] for row in rows} == {who}
    assert found > 25


def test_a_key_that_reads_changes_nothing(target: Attacked, things: dict[str, str]) -> None:
    with target.client("looker") as looker:
        for operation in OPERATIONS:
            answer = ask(looker, operation.method, operation.path, things) if not operation.is_stream else None
            if answer is not None:
                assert (answer.status_code == 403) is (operation.grant is not Scope.READ), (operation, answer.text)


def test_an_admin_sees_everybodys_things_but_does_not_use_them(target: Attacked, things: dict[str, str]) -> None:
    sandbox_id = things["sandbox_id"]
    with target.client("adam") as adam:
        seen = adam.get(f"/sandboxes/{sandbox_id}")
        assert seen.status_code == 200
        assert "hunter2" not in seen.text
        for method, path in (
            ("POST", "/sandboxes/{sandbox_id}/exec"),
            ("GET", "/sandboxes/{sandbox_id}/files/{path}"),
            ("POST", "/sandboxes/{sandbox_id}/executions/{execution_id}/stdin"),
        ):
            refused = ask(adam, method, path, things)
            assert (refused.status_code, refused.json()["code"]) == (403, "forbidden"), path
            assert "another's" in refused.json()["detail"]
            assert ask(adam, method, path, NONE).status_code == 404, path


def test_what_the_environment_of_a_sandbox_holds_is_never_shown(ann: httpx.Client, things: dict[str, str]) -> None:
    sandbox = f"/sandboxes/{things['sandbox_id']}"
    for path in (sandbox, "/sandboxes", f"{sandbox}/executions", "/audit?limit=1000"):
        assert "hunter2" not in ann.get(path).text


def test_keys_of_one_owner_mean_nothing_to_another(target: Attacked, ann: httpx.Client) -> None:
    with target.client("bob") as bob:
        same: dict[str, Any] = {"json": {"session_key": "same"}, "headers": {"Idempotency-Key": "same"}}
        anns, bobs = ann.post("/sandboxes", **same).json()["id"], bob.post("/sandboxes", **same).json()["id"]
        assert anns != bobs
        assert ann.post("/sandboxes", **same).json()["id"] == anns
        other = ann.post(f"/sandboxes/{anns}/exec", json={"code": "1"}, headers=same["headers"])
        assert other.status_code == 409
        assert ann.delete(f"/sandboxes/{anns}").status_code == bob.delete(f"/sandboxes/{bobs}").status_code == 204


def test_a_revoked_key_opens_nothing_soon_after(target: Attacked) -> None:
    made = target.service.run("keys", "create", "brief", "--tenant", "east", "--json")
    secret = re.search(r"wrn_[\w-]+", made.stdout)
    assert secret is not None
    with httpx.Client(
        base_url=f"{target.url}/api/v1", headers={"X-API-Key": secret[0]}, timeout=DEADLINE_S, trust_env=False
    ) as client:
        assert client.get("/sandboxes").status_code == 200
        assert target.service.run("keys", "revoke", "brief").returncode == 0
        wait_until(lambda: client.get("/sandboxes").status_code == 401, "the key to be refused")


def test_a_stream_ends_soon_after_its_key_is_revoked(target: Attacked, ann: httpx.Client) -> None:
    made = target.service.run("keys", "create", "watching", "--tenant", "north", "--subject", "ann", "--json")
    secret = re.search(r"wrn_[\w-]+", made.stdout)
    assert secret is not None
    sandbox_id = create(ann)
    begun = ann.post(f"/sandboxes/{sandbox_id}/exec", json={"command": "sleep 1000", "background": True}).json()
    path = f"{target.url}/api/v1/sandboxes/{sandbox_id}/executions/{begun['execution_id']}/events"
    names = []
    with httpx.stream("GET", path, headers={"X-API-Key": secret[0]}, timeout=60, trust_env=False) as answer:
        assert target.service.run("keys", "revoke", "watching").returncode == 0
        names += [line for line in answer.iter_lines() if line.startswith("event: ")]
    assert names[-1] == "event: error"
    assert ann.delete(f"/sandboxes/{sandbox_id}").status_code == 204


def test_bodies_that_never_end_take_only_the_room_of_their_owner(target: Attacked, ann: httpx.Client) -> None:
    head = target.head("ann", "POST", "/run", "Content-Type: application/json", "Content-Length: 16000000") + b"\r\n"
    with contextlib.ExitStack() as halves:
        for _ in range(40):
            connection = halves.enter_context(target.connect())
            connection.sendall(head + b" ")
        assert connection.recv(65_536).startswith(b"HTTP/1.1 429 ")
        assert ann.get("/sandboxes").status_code == 200
        with target.client("bob") as bob:
            large = {"code": "1", "stdin": "x" * 10_000_000}
            assert bob.post("/run", json=large).json()["exit_code"] == 0
    wait_until(lambda: ann.post("/run", json=large).status_code == 200, "the room to be free again")


MANY = 1_000_000


@pytest.mark.parametrize(
    "body",
    [
        b"[" * MANY,
        b'{"a":' * MANY,
        b'{"code":"1","env":{' + b",".join(b'"k-%d":1' % number for number in range(MANY // 4)) + b"}}",
        b"{" + b",".join(b'"k%d":1' % number for number in range(MANY // 4)) + b"}",
        b'{"argv":[' + b"1," * MANY + b"1]}",
        b'{"argv":[' + b'"",' * MANY + b'""]}',
        b'{"code":"1","output_bytes":' + b"9" * MANY + b"}",
    ],
    ids=["brackets", "braces", "bad names", "unknown names", "numbers", "strings", "digits"],
)
def test_json_that_takes_long_to_read_is_not_read(ann: httpx.Client, things: dict[str, str], body: bytes) -> None:
    answer = ann.post(f"/sandboxes/{things['sandbox_id']}/exec", content=body)
    assert answer.status_code == 400, answer.text
    assert len(answer.content) < 2000


@pytest.mark.parametrize("value", ["NaN", "Infinity", "-Infinity", "1e999", "-1", "null", "true", '"5"'])
def test_times_are_numbers_that_a_clock_can_reach(ann: httpx.Client, things: dict[str, str], value: str) -> None:
    body = f'{{"code": "1", "grace_seconds": {value}}}'.encode()
    assert ann.post(f"/sandboxes/{things['sandbox_id']}/exec", content=body).status_code in {400, 422}


def test_only_the_owner_who_starts_too_much_is_stopped(target: Attacked, ann: httpx.Client) -> None:
    sandbox_id = create(ann)
    sleep = {"command": "sleep 1000", "background": True}
    codes = [ann.post(f"/sandboxes/{sandbox_id}/exec", json=sleep).status_code for _ in range(EXECUTIONS + 4)]
    assert codes.count(429) >= 4
    with target.client("bob") as bob:
        own = create(bob)
        assert bob.post(f"/sandboxes/{own}/exec", json={"code": "1 + 1"}).json()["exit_code"] == 0
        assert bob.delete(f"/sandboxes/{own}").status_code == 204
    assert ann.delete(f"/sandboxes/{sandbox_id}").status_code == 204


def test_a_list_of_executions_is_short_however_long_they_are(ann: httpx.Client) -> None:
    sandbox_id = create(ann)
    code = f"import sys\nprint('o' * 30_000)\nprint('e' * 30_000, file=sys.stderr)\n# {'c' * 30_000}"
    for _ in range(10):
        assert ann.post(f"/sandboxes/{sandbox_id}/exec", json={"code": code}).json()["exit_code"] == 0
    listed = ann.get(f"/sandboxes/{sandbox_id}/executions", params={"limit": 100})
    assert len(listed.content) < 10 * 16_384
    assert {each["truncated"] for each in listed.json()["items"]} == {True}
    one = ann.get(f"/sandboxes/{sandbox_id}/executions/{listed.json()['items'][0]['execution_id']}").json()
    assert len(one["stdout"]) == 30_001
    assert not one["truncated"]
    assert ann.delete(f"/sandboxes/{sandbox_id}").status_code == 204


def test_unread_streams_delay_no_other_caller(target: Attacked, ann: httpx.Client) -> None:
    sandbox_id = create(ann)
    begun = ann.post(f"/sandboxes/{sandbox_id}/exec", json={"command": "yes", "background": True}).json()
    path = f"/sandboxes/{sandbox_id}/executions/{begun['execution_id']}/events"
    before = target.memory_mb()
    unread = [target.connect() for _ in range(20)]
    for connection in unread:
        connection.sendall(target.head("ann", "GET", path) + b"\r\n")
    with target.client("bob") as bob:
        own = create(bob)
        for _ in range(10):
            assert bob.post(f"/sandboxes/{own}/exec", json={"code": "1 + 1"}).json()["exit_code"] == 0
        assert bob.delete(f"/sandboxes/{own}").status_code == 204
    assert ann.delete(f"/sandboxes/{sandbox_id}").status_code == 204
    assert target.memory_mb() < before + 200
    for connection in unread:
        connection.close()


def test_unread_results_are_written_a_few_at_a_time(target: Attacked, ann: httpx.Client) -> None:
    """Each of these is 2 MiB, and 12 MiB as JSON."""
    sandbox_id = create(ann)
    code = "import sys\nfor stream in sys.stdout, sys.stderr: stream.write('\\0' * (1 << 20))"
    begun = ann.post(f"/sandboxes/{sandbox_id}/exec", json={"code": code, "background": True}).json()
    execution = f"/sandboxes/{sandbox_id}/executions/{begun['execution_id']}"
    wait_until(lambda: ann.get(execution).json()["status"] == "finished", "it to end")
    before = target.memory_mb()
    unread = [target.connect() for _ in range(100)]
    for connection in unread:
        connection.sendall(target.head("ann", "GET", f"{execution}/events") + b"\r\n")
    with target.client("bob") as bob:
        own = create(bob)
        whole = bob.post(f"/sandboxes/{own}/exec", json={"code": code}).json()
        assert len(whole["stdout"]) == 1 << 20
        assert bob.delete(f"/sandboxes/{own}").status_code == 204
    grown = target.memory_mb() - before
    for connection in unread:
        connection.close()
    assert grown < 600
    assert ann.delete(f"/sandboxes/{sandbox_id}").status_code == 204


def test_an_execution_with_too_many_followers_can_be_killed(target: Attacked, ann: httpx.Client) -> None:
    sandbox_id = create(ann)
    begun = ann.post(f"/sandboxes/{sandbox_id}/exec", json={"command": "sleep 100", "background": True}).json()
    execution = f"/sandboxes/{sandbox_id}/executions/{begun['execution_id']}"
    followers = [target.connect() for _ in range(300)]
    for connection in followers:
        connection.sendall(target.head("ann", "GET", f"{execution}/events") + b"\r\n")
    heads = [connection.recv(12) for connection in followers]
    killed = ann.post(f"{execution}/kill")
    for connection in followers:
        connection.close()

    assert sorted(set(heads)) == [b"HTTP/1.1 200", b"HTTP/1.1 429"]
    assert killed.status_code == 204
    wait_until(lambda: ann.get(execution).json()["status"] == "finished", "it to end")
    assert ann.delete(f"/sandboxes/{sandbox_id}").status_code == 204


def test_everything_at_once_to_one_sandbox_ends_well(target: Attacked) -> None:
    with target.client("ann") as ann, ThreadPoolExecutor(10) as threads:
        for _ in range(2):
            sandbox = f"/sandboxes/{create(ann)}"
            things: list[Callable[[], httpx.Response]] = [
                lambda path=sandbox: ann.post(f"{path}/exec", json={"code": "sum(range(10**6))"}),  # type: ignore[misc]  # of this round
                lambda path=sandbox: ann.put(f"{path}/files/f", content=b"x" * 1_000_000),  # type: ignore[misc]  # of this round
                lambda path=sandbox: ann.post(f"{path}/stop"),  # type: ignore[misc]  # of this round
                lambda path=sandbox: ann.post(f"{path}/start"),  # type: ignore[misc]  # of this round
                lambda path=sandbox: ann.post(f"{path}/kernels", json={"name": "k"}),  # type: ignore[misc]  # of this round
            ]
            asked = [threads.submit(thing) for thing in things * 2]
            asked += [threads.submit(ann.delete, sandbox) for _ in range(2)]
            codes = [each.result().status_code for each in asked]
            assert set(codes) <= {200, 201, 204, 404, 409, 502}, codes
            assert codes[-2:].count(204) >= 1
            assert ann.get(sandbox).status_code == 404
