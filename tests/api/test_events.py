"""Following executions with server-sent events: live, again, and from the middle."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

import pytest

from api.served import Event, Served, read_events

if TYPE_CHECKING:
    from collections.abc import Callable

    import httpx

    from warren.settings import Settings


def follow(client: httpx.Client, sandbox: str, **body: Any) -> list[Event]:
    headers = {"Accept": "text/event-stream"}
    with client.stream("POST", f"/sandboxes/{sandbox}/exec", json=body, headers=headers) as response:
        assert response.status_code == 200, response.read()
        assert response.headers["content-type"].startswith("text/event-stream")
        return list(read_events(response))


def replay(client: httpx.Client, sandbox: str, execution: str, **options: Any) -> list[Event]:
    with client.stream("GET", f"/sandboxes/{sandbox}/executions/{execution}/events", **options) as response:
        assert response.status_code == 200, response.read()
        return list(read_events(response))


def text(events: list[Event], kind: str = "stdout") -> str:
    return "".join(event.data["data"] for event in events if event.name == kind)


def test_a_stream_begins_with_the_id_and_ends_with_the_result(ann: httpx.Client, sandbox: str) -> None:
    events = follow(ann, sandbox, code="import sys\nprint('out')\nprint('err', file=sys.stderr)\ndisplay(1)\n2")

    assert events[0].name == "started"
    assert events[0].data == {"execution_id": events[-1].data["execution_id"], "sandbox_id": sandbox}
    assert (text(events), text(events, "stderr")) == ("out\n", "err\n")
    assert [event.data["data"] for event in events if event.name == "display"] == [
        {"text/plain": "1"},
        {"text/plain": "2"},
    ]
    assert events[-1].name == "result"
    assert (events[-1].data["exit_code"], events[-1].data["stdout"]) == (0, "out\n")


def test_events_are_numbered_and_come_while_it_runs(ann: httpx.Client, sandbox: str) -> None:
    body = {"command": "echo one; read; echo two", "stdin_open": True, "stream": True}
    with ann.stream("POST", f"/sandboxes/{sandbox}/exec", json=body) as response:
        events = read_events(response)
        seen = [next(events), next(events)]
        where = f"/sandboxes/{sandbox}/executions/{seen[0].data['execution_id']}"
        ann.post(f"{where}/stdin", content=b"\n", params={"eof": "true"})
        seen += events

    numbers = [int(event.id) for event in seen if event.id is not None]
    assert seen[1].data["data"] == "one\n"
    assert numbers == sorted(set(numbers))
    assert seen[-1].data["stdout"] == "one\ntwo\n"


def test_a_character_that_is_cut_in_two_arrives_whole(ann: httpx.Client, sandbox: str) -> None:
    code = "import os, time\nfor byte in 'grüße €'.encode():\n    os.write(1, bytes([byte])); time.sleep(0.01)"

    events = follow(ann, sandbox, code=code)

    assert text(events) == "grüße €"


def test_bytes_that_are_no_text_can_be_had_exactly(ann: httpx.Client, sandbox: str) -> None:
    events = follow(ann, sandbox, command=r"printf '\xff\xfe'", encoding="base64")
    marked = follow(ann, sandbox, command=r"printf 'a\xe2\x82'")

    assert b"".join(base64.b64decode(event.data["data"]) for event in events if event.name == "stdout") == b"\xff\xfe"
    assert text(marked) == "a\ufffd"


@pytest.mark.parametrize("background", [True, False])
def test_what_is_over_can_be_replayed(ann: httpx.Client, sandbox: str, background: bool) -> None:
    events = follow(ann, sandbox, command="echo a; echo b", background=background)
    execution = events[0].data["execution_id"]

    again = replay(ann, sandbox, execution)

    assert text(again) == "a\nb\n"
    assert again[-1].name == "result"
    assert again[-1].data["exit_code"] == 0


def test_a_stream_is_resumed_after_the_last_event_seen(ann: httpx.Client, sandbox: str) -> None:
    code = "import time\nfor i in range(5):\n    print(i, flush=True); time.sleep(0.05)"
    events = follow(ann, sandbox, code=code, background=True)
    execution = events[0].data["execution_id"]
    output = [event for event in events if event.name == "stdout"]
    middle = output[len(output) // 2]

    by_header = replay(ann, sandbox, execution, headers={"Last-Event-ID": str(middle.id)})
    by_query = replay(ann, sandbox, execution, params={"after": middle.id})

    rest = text(output[len(output) // 2 + 1 :])
    assert text(by_header) == rest
    assert [str(event) for event in by_query[1:-1]] == [str(event) for event in by_header[1:-1]]
    assert by_header[-1].name == "result"


def test_two_can_follow_the_same_execution(ann: httpx.Client, sandbox: str) -> None:
    body = {"command": "echo up; while [ ! -e go ]; do sleep 0.02; done; echo over", "background": True}
    execution = ann.post(f"/sandboxes/{sandbox}/exec", json=body).json()["execution_id"]
    path = f"/sandboxes/{sandbox}/executions/{execution}/events"

    with ann.stream("GET", path) as first, ann.stream("GET", path) as second:
        ann.put(f"/sandboxes/{sandbox}/files/go", content=b"")
        told = [text(list(read_events(each))) for each in (first, second)]

    assert told == ["up\nover\n", "up\nover\n"]


def test_who_does_not_follow_gets_what_has_happened_by_now(ann: httpx.Client, sandbox: str) -> None:
    body = {"command": "echo one; read; echo two", "stdin_open": True, "background": True}
    execution = ann.post(f"/sandboxes/{sandbox}/exec", json=body).json()["execution_id"]
    where = f"/sandboxes/{sandbox}/executions/{execution}"
    with ann.stream("GET", f"{where}/events") as response:
        assert any(event.name == "stdout" for event in read_events(response))

    so_far = replay(ann, sandbox, execution, params={"follow": "false"})
    rest = replay(ann, sandbox, execution, params={"follow": "false", "after": so_far[-2].id})
    ann.post(f"{where}/stdin", content=b"\n", params={"eof": "true"})
    replay(ann, sandbox, execution)
    ended = replay(ann, sandbox, execution, params={"follow": "false"})

    assert [event.name for event in so_far] == ["started", "stdout", "caught_up"]
    assert text(so_far) == "one\n"
    assert [event.name for event in rest] == ["started", "caught_up"]
    assert (ended[-1].name, ended[-1].data["stdout"]) == ("result", "one\ntwo\n")


def test_a_wrong_last_event_id_is_refused(ann: httpx.Client, sandbox: str) -> None:
    execution = follow(ann, sandbox, code="1")[0].data["execution_id"]

    refused = ann.get(f"/sandboxes/{sandbox}/executions/{execution}/events", headers={"Last-Event-ID": "x"})

    assert refused.status_code == 400


def test_a_stream_that_cannot_begin_is_a_problem(ann: httpx.Client) -> None:
    refused = ann.post(
        "/sandboxes/sbx_0000000000000000/exec", json={"code": "1"}, headers={"Accept": "text/event-stream"}
    )

    assert refused.status_code == 404
    assert refused.headers["content-type"] == "application/problem+json"


def test_a_quiet_stream_says_that_it_lives_and_then_how_it_ended(
    make_settings: Callable[..., Settings],
) -> None:
    served = Served(make_settings("bare", serve={"heartbeat_s": 0.1}))
    served.start()
    try:
        with served.client() as ann:
            sandbox = ann.post("/sandboxes", json={}).json()["id"]
            begun = ann.post(
                f"/sandboxes/{sandbox}/exec", json={"command": "cat", "background": True, "stdin_open": True}
            ).json()
            execution = f"/sandboxes/{sandbox}/executions/{begun['execution_id']}"
            beats = 0
            with ann.stream("GET", f"{execution}/events") as response:
                lines = response.iter_lines()
                while beats < 3:
                    beats += next(lines).startswith(": ")
                with served.client() as other:
                    assert other.post(f"{execution}/stdin?eof=true", content=b"said").status_code == 204
                rest = "\n".join(lines)
            assert '{"data":"said"' in rest
            assert "event: result" in rest
            assert ann.delete(f"/sandboxes/{sandbox}").status_code == 204
    finally:
        served.stop()
