"""Running code and commands over HTTP: answers, the background, input, ends, and clients that leave."""

from __future__ import annotations

import base64
import json
import socket
from typing import TYPE_CHECKING, Any

import pytest

from api.served import wait_for

if TYPE_CHECKING:
    import httpx

    from api.served import Served


def run(client: httpx.Client, sandbox: str, **body: Any) -> dict[str, Any]:
    answer = client.post(f"/sandboxes/{sandbox}/exec", json=body)
    assert answer.status_code == 200, answer.text
    result: dict[str, Any] = answer.json()
    return result


def finished(client: httpx.Client, sandbox: str, execution: str) -> dict[str, Any]:
    def look() -> dict[str, Any] | None:
        shown: dict[str, Any] = client.get(f"/sandboxes/{sandbox}/executions/{execution}").json()
        return shown if shown["status"] == "finished" else None

    found: dict[str, Any] = wait_for(look)
    return found


def test_a_command_says_everything_about_how_it_ended(ann: httpx.Client, sandbox: str) -> None:
    told = run(ann, sandbox, command="mkdir out; echo hi > out/a; echo oops >&2; exit 3")

    assert (told["exit_code"], told["cause"], told["state"]) == (3, "exited", "none")
    assert (told["stdout"], told["stderr"]) == ("", "oops\n")
    assert told["files_changed"] == [{"path": "out/a", "action": "created", "size_bytes": 3}]
    assert told["timed_out"] is False
    assert told["duration_ms"] > 0
    assert told["execution_id"].startswith("exe_")


def test_python_keeps_its_variables(ann: httpx.Client, sandbox: str) -> None:
    run(ann, sandbox, code="x = 20")

    told = run(ann, sandbox, code="x + 22")

    assert told["displays"] == [{"data": {"text/plain": "42"}, "metadata": {}, "is_result": True}]
    assert told["state"] == "kept"
    assert run(ann, sandbox, code="x", kernel="other")["error"]["name"] == "NameError"
    assert run(ann, sandbox, code="print('x' in globals())", fresh=True)["stdout"] == "False\n"


@pytest.mark.parametrize(
    ("body", "stdout"),
    [
        ({"code": "echo $((6*7))", "language": "bash"}, "42\n"),
        ({"argv": ["printf", "%s|", "a b", "$HOME"]}, "a b|$HOME|"),
        ({"code": "6 * 7", "echo": "stdout"}, "42\n"),
        ({"command": "cat", "stdin": "typed ü"}, "typed ü"),
        ({"command": "cat", "stdin_base64": base64.b64encode(b"bytes").decode()}, "bytes"),
        ({"code": "print(input())", "stdin": "line\n"}, "line\n"),
        ({"command": "echo $WORD", "env": {"WORD": "given"}}, "given\n"),
        ({"command": "mkdir -p sub/dir && cd sub/dir && basename $PWD"}, "dir\n"),
        ({"code": ""}, ""),
    ],
)
def test_what_can_be_run(ann: httpx.Client, shared: str, body: dict[str, Any], stdout: str) -> None:
    told = run(ann, shared, **body)

    assert (told["stdout"], told["exit_code"]) == (stdout, 0)


def test_a_folder_to_run_in(ann: httpx.Client, sandbox: str) -> None:
    run(ann, sandbox, command="mkdir here")

    assert run(ann, sandbox, command="basename $PWD", cwd="here")["stdout"] == "here\n"
    assert run(ann, sandbox, code="import os; print(os.path.basename(os.getcwd()))", cwd="here")["stdout"] == "here\n"


def test_bytes_that_are_no_text(ann: httpx.Client, sandbox: str) -> None:
    command = r"printf 'a\xff\x00b'"

    text = run(ann, sandbox, command=command)
    exact = run(ann, sandbox, command=command, encoding="base64")
    recorded = ann.get(f"/sandboxes/{sandbox}/executions/{exact['execution_id']}", params={"encoding": "base64"}).json()

    assert text["stdout"] == "a\ufffd\0b"
    assert (base64.b64decode(exact["stdout"]), exact["encoding"]) == (b"a\xff\0b", "base64")
    assert recorded["stdout"] == exact["stdout"]


def test_a_program_that_says_what_json_cannot_hold_is_answered(ann: httpx.Client, sandbox: str) -> None:
    told = run(ann, sandbox, code="raise ValueError('half a pair: \\ud800')")

    assert (told["cause"], told["error"]["name"]) == ("error", "ValueError")


def test_a_timeout_is_a_result(ann: httpx.Client, sandbox: str) -> None:
    run(ann, sandbox, code="kept = 1")

    told = run(ann, sandbox, code="print('begun', flush=True)\nwhile True: pass", timeout_seconds=2)

    assert (told["cause"], told["timed_out"], told["stdout"]) == ("timeout", True, "begun\n")
    assert told["limit"] == pytest.approx(2000)
    assert told["hint"]
    assert run(ann, sandbox, code="print(kept)")["stdout"] == "1\n"


def test_long_output_is_cut_in_the_middle(ann: httpx.Client, sandbox: str) -> None:
    told = run(ann, sandbox, command="seq 100000", output_bytes=1000)

    assert told["truncated"] is True
    assert told["stdout"].startswith("1\n2\n")
    assert told["stdout"].endswith("100000\n")
    assert told["stdout_bytes"] > 500_000
    assert len(told["stdout"]) < 2000


def test_an_idempotency_key_runs_once(ann: httpx.Client, sandbox: str) -> None:
    headers = {"Idempotency-Key": "run-1"}
    body = {"command": "echo x >> log; wc -l < log"}

    first = ann.post(f"/sandboxes/{sandbox}/exec", json=body, headers=headers).json()
    again = ann.post(f"/sandboxes/{sandbox}/exec", json=body, headers=headers).json()
    other = ann.post(f"/sandboxes/{sandbox}/exec", json={"command": "id"}, headers=headers)

    assert (first["stdout"].strip(), again["stdout"].strip()) == ("1", "1")
    assert first["execution_id"] == again["execution_id"]
    assert other.status_code == 409


def test_the_background_answers_at_once(ann: httpx.Client, sandbox: str) -> None:
    started = ann.post(
        f"/sandboxes/{sandbox}/exec",
        json={"command": "read line; echo got $line", "background": True, "stdin_open": True},
    )
    execution = started.json()["execution_id"]
    where = started.headers["location"].removeprefix("/api/v1")

    running = ann.get(where).json()
    written = ann.post(f"{where}/stdin", content=b"some")
    rest = ann.post(f"{where}/stdin", content=b"thing\n", params={"eof": "true"})
    told = finished(ann, sandbox, execution)

    assert (started.status_code, running["status"], running["exit_code"]) == (202, "running", None)
    assert running["background"] is True
    assert (written.status_code, rest.status_code) == (204, 204)
    assert told["stdout"] == "got something\n"
    assert ann.post(f"{where}/stdin", content=b"late").status_code == 409


def test_an_execution_can_be_interrupted_and_killed(ann: httpx.Client, sandbox: str) -> None:
    for verb, cause in (("interrupt", "interrupted"), ("kill", "killed")):
        body = {"code": "import time\nprint('up', flush=True)\ntime.sleep(600)", "background": True}
        started = ann.post(f"/sandboxes/{sandbox}/exec", json=body).json()["execution_id"]
        with ann.stream("GET", f"/sandboxes/{sandbox}/executions/{started}/events") as events:
            assert any('"up' in line for line in events.iter_lines())

        ended = ann.post(f"/sandboxes/{sandbox}/executions/{started}/{verb}")

        assert ended.status_code == 204
        assert finished(ann, sandbox, started)["cause"] == cause
        assert ann.post(f"/sandboxes/{sandbox}/executions/{started}/{verb}").status_code == 204


def test_what_ran_is_listed_newest_first(ann: httpx.Client, sandbox: str) -> None:
    ran = [run(ann, sandbox, code=f"print({i})")["execution_id"] for i in range(3)]

    def look() -> Any:
        page = ann.get(f"/sandboxes/{sandbox}/executions", params={"limit": 2}).json()
        return page if all(item["status"] == "finished" for item in page["items"]) else None

    page = wait_for(look)

    assert [item["execution_id"] for item in page["items"]] == ran[:0:-1]
    assert (page["total"], page["limit"]) == (3, 2)
    assert page["items"][0]["code"] == "print(2)"
    assert page["items"][0]["stdout"] == "2\n"
    assert ann.get(f"/sandboxes/{sandbox}").json()["command_count"] == 3


def test_an_execution_is_found_only_where_it_ran(ann: httpx.Client, sandbox: str) -> None:
    other = ann.post("/sandboxes").json()["id"]
    ran = run(ann, sandbox, code="1")["execution_id"]

    answers = [
        ann.get(f"/sandboxes/{other}/executions/{ran}"),
        ann.get(f"/sandboxes/{other}/executions/{ran}/events"),
        ann.post(f"/sandboxes/{other}/executions/{ran}/kill"),
        ann.get(f"/sandboxes/{sandbox}/executions/exe_0000000000000000"),
        ann.get(f"/sandboxes/{sandbox}/executions/..%2f..%2fetc"),
        ann.get(f"/sandboxes/sbx_0000000000000000/executions/{ran}"),
    ]
    ann.delete(f"/sandboxes/{other}")

    assert {answer.status_code for answer in answers} == {404}


@pytest.mark.parametrize(
    ("body", "status", "said"),
    [
        ({}, 400, "exactly one of command, code and argv"),
        ({"code": "1", "command": "id"}, 400, "exactly one"),
        ({"command": ""}, 422, "command"),
        ({"argv": []}, 422, "argv"),
        ({"cmd": "id"}, 422, "cmd"),
        ({"code": "1", "timeout": 3}, 422, "did you mean timeout_seconds?"),
        ({"code": "1", "timeout_seconds": 0}, 422, "timeout_seconds"),
        ({"code": "1", "timeout_seconds": True}, 422, "timeout_seconds"),
        ({"code": "nul\0"}, 422, "code"),
        ({"command": "nul\0"}, 422, "command"),
        ({"code": "1", "kernel": "../x"}, 422, "kernel"),
        ({"code": "1", "language": "perl"}, 422, "language"),
        ({"command": "cat", "stdin_base64": "no base64!"}, 422, "stdin_base64"),
        ({"command": "cat", "stdin": "a", "stdin_base64": "YQ=="}, 400, "both"),
        ({"code": "1", "output_bytes": 1 << 40}, 422, "output_bytes"),
    ],
)
def test_what_is_wrong_with_a_request_is_named(
    ann: httpx.Client, shared: str, body: dict[str, Any], status: int, said: str
) -> None:
    refused = ann.post(f"/sandboxes/{shared}/exec", json=body)

    assert (refused.status_code, said in refused.json()["detail"]) == (status, True), refused.text


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_leaves_ends_what_it_ran(served: Served, ann: httpx.Client, sandbox: str, stream: bool) -> None:
    body = json.dumps({"command": "echo up > up; sleep 600", "stream": stream}).encode()
    head = (
        f"POST /api/v1/sandboxes/{sandbox}/exec HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        f"Authorization: Bearer {served.keys['ann']}\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    with socket.create_connection(("127.0.0.1", served.port)) as connection:
        connection.sendall(head.encode() + body)
        wait_for(lambda: ann.get(f"/sandboxes/{sandbox}/files/up").status_code == 200)

    ran = ann.get(f"/sandboxes/{sandbox}/executions").json()["items"][0]["execution_id"]
    told = finished(ann, sandbox, ran)

    assert told["cause"] in {"interrupted", "killed"}


def test_a_client_that_leaves_does_not_end_the_background(served: Served, ann: httpx.Client, sandbox: str) -> None:
    body = {"command": "echo up; while [ ! -e go ]; do sleep 0.02; done; echo over", "background": True, "stream": True}
    with served.client("ann") as other, other.stream("POST", f"/sandboxes/{sandbox}/exec", json=body) as events:
        assert any('"up' in line for line in events.iter_lines())

    ran = ann.get(f"/sandboxes/{sandbox}/executions").json()["items"][0]
    ann.put(f"/sandboxes/{sandbox}/files/go", content=b"")

    assert ran["status"] == "running"
    assert finished(ann, sandbox, ran["execution_id"])["stdout"] == "up\nover\n"
