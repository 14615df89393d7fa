"""Executions belong to the agent: they outlive connections, keep their events, and are found again."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

import pytest

from warren.guest.wire.frames import CHUNK, WINDOW

if TYPE_CHECKING:
    from unit.guest.agent_client import Client, RunningAgent


def test_an_execution_runs_on_when_its_connection_drops(agent: RunningAgent) -> None:
    os.mkfifo(os.path.join(agent.workspace, "gate"))
    first = agent.connect()
    stream = first.start_run("echo one; read < gate; echo two", kind="shell", exec="exe_dropped")
    first.wait_for(stream, lambda reply: reply.output() == b"one\n")
    first.close()

    second = agent.connect()
    listed = {one["exec"]: one for one in second.hello["executions"]}
    assert listed["exe_dropped"]["state"] == "running"
    assert listed["exe_dropped"]["seq"] == 1
    with open(os.path.join(agent.workspace, "gate"), "w") as gate:
        gate.write("\n")
    reply = second.wait(second.start("attach", exec="exe_dropped", after=1))

    assert reply.output() == b"two\n"
    assert reply.result["stdout"] == "one\ntwo\n"
    second.close()


def test_a_finished_execution_is_replayed_from_its_first_event_until_acknowledged(client: Client) -> None:
    ran = client.wait(client.start_run("echo x", kind="shell", exec="exe_replay"))
    again = client.wait(client.start("attach", exec="exe_replay"))

    assert again.events == [({**header, "id": again.events[0][0]["id"]}, payload) for header, payload in ran.events]
    assert client.call("ack", exec="exe_replay")["t"] == "ok"
    assert client.call("attach", exec="exe_replay")["code"] == "not_found"
    assert client.call("ack", exec="exe_replay")["code"] == "not_found"


def test_a_listener_that_has_the_result_is_answered_at_once(client: Client) -> None:
    ran = client.wait(client.start_run("echo x", kind="shell", exec="exe_seen"))
    again = client.wait(client.start("attach", exec="exe_seen", after=ran.events[-1][0]["seq"]))

    assert again.events == []


def test_several_listeners_get_every_event(agent: RunningAgent, client: Client) -> None:
    other = agent.connect()
    stream = client.start_run("read line; echo $line", kind="shell", exec="exe_shared", stdin=True)
    while client.call("attach", exec="exe_none")["code"] != "not_found":
        pass
    listening = other.start("attach", exec="exe_shared")
    client.send({"t": "data", "id": stream}, b"both\n")

    assert client.wait(stream).output() == b"both\n"
    assert other.wait(listening).output() == b"both\n"
    other.close()


def test_who_does_not_follow_gets_what_there_is(agent: RunningAgent, client: Client) -> None:
    os.mkfifo(os.path.join(agent.workspace, "latch"))
    code = "head -c 6000000 /dev/zero; echo one; read < latch; echo two"
    stream = client.start_run(code, kind="shell", exec="exe_so_far")
    client.wait_for(stream, lambda reply: reply.output().endswith(b"one\n"))
    so_far = client.wait(client.start("attach", exec="exe_so_far", follow=False))
    nothing_new = client.wait(
        client.start("attach", exec="exe_so_far", follow=False, after=so_far.events[-1][0]["seq"])
    )
    with open(os.path.join(agent.workspace, "latch"), "w") as latch:
        latch.write("\n")
    client.wait(stream)
    all_of_it = client.wait(client.start("attach", exec="exe_so_far", follow=False))

    assert {header["kind"] for header, _ in so_far.events} == {"stdout"}
    assert (len(so_far.output()), so_far.output()[-4:]) == (6_000_004, b"one\n")
    assert nothing_new.events == []
    assert all_of_it.output() == so_far.output() + b"two\n"
    assert all_of_it.result["exit_code"] == 0
    assert client.call("attach", exec="exe_so_far", follow="no")["code"] == "invalid_request"


def test_an_id_is_used_once(client: Client) -> None:
    client.run("true", kind="shell", exec="exe_once")

    assert client.call("run", b"true", kind="shell", exec="exe_once")["code"] == "conflict"


def test_a_running_execution_cannot_be_acknowledged(client: Client) -> None:
    stream = client.start_run("read line", kind="shell", exec="exe_busy", stdin=True)

    assert client.call("ack", exec="exe_busy")["code"] == "conflict"
    client.send({"t": "eof", "id": stream})
    client.wait(stream)


def test_only_the_last_finished_executions_are_kept(client: Client) -> None:
    for number in range(70):
        client.run("", kind="argv", argv=["true"], exec=f"exe_many{number}")

    assert client.call("attach", exec="exe_many0")["code"] == "not_found"
    assert client.call("attach", exec="exe_many69")["t"] == "ok"


def test_cancelling_a_stream_leaves_the_execution_running(agent: RunningAgent, client: Client) -> None:
    os.mkfifo(os.path.join(agent.workspace, "held"))
    stream = client.start_run("echo here; read < held; echo end", kind="shell", exec="exe_cancel")
    client.wait_for(stream, lambda reply: bool(reply.events))
    client.send({"t": "cancel", "id": stream})

    attached = client.start("attach", exec="exe_cancel")
    with open(os.path.join(agent.workspace, "held"), "w") as gate:
        gate.write("\n")
    reply = client.wait(attached)
    assert reply.result["stdout"] == "here\nend\n"


def test_a_slow_listener_misses_output_and_learns_how_much(agent: RunningAgent, client: Client) -> None:
    slow = agent.connect()
    stream = slow.start_run("head -c 50000000 /dev/zero", kind="shell", exec="exe_slow")
    slow.wait_for(stream, lambda reply: bool(reply.events))
    result = client.wait(client.start("attach", exec="exe_slow")).result

    reply = slow.wait(stream)
    missed = sum(header.get("skipped", 0) for header, _ in reply.events)
    assert result["stdout_bytes"] == 50_000_000
    assert missed + len(reply.output()) == 50_000_000
    slow.close()


def test_a_paced_program_waits_for_its_reader_and_nothing_is_missed(client: Client) -> None:
    code = "head -c 20000000 /dev/zero; echo done > reached"
    stream = client.start_run(code, kind="shell", paced=True)
    reply = client.wait_for(stream, lambda reply: len(reply.output()) > WINDOW - (1 << 20))
    # Whatever the agent has sent by now it could send without credit.
    client.call("kernels")
    sent = len(reply.output())
    found = client.call("fs.stat", path="reached")
    client.send({"t": "credit", "id": stream, "n": 1 << 30})
    client.wait(stream)

    assert sent <= WINDOW + (128 << 10)
    assert found["code"] == "not_found"
    assert len(reply.output()) == reply.result["stdout_bytes"] == 20_000_000
    assert not any("skipped" in header for header, _ in reply.events)


def test_a_paced_program_runs_on_when_its_reader_leaves(agent: RunningAgent, client: Client) -> None:
    slow = agent.connect()
    stream = slow.start_run("head -c 20000000 /dev/zero", kind="shell", exec="exe_left", paced=True)
    slow.wait_for(stream, lambda reply: len(reply.output()) > WINDOW - (1 << 20))
    slow.close()

    assert client.wait(client.start("attach", exec="exe_left")).result["stdout_bytes"] == 20_000_000


def test_who_wants_it_whole_has_everything_in_one_answer(client: Client) -> None:
    code = "display(1); print('out'); display(2); 3"
    reply = client.wait(client.start_run(code, exec="exe_whole", stream=False, whole=True))

    assert reply.events == []
    assert reply.end is not None
    assert (reply.end["kind"], reply.end["displays"]) == ("result", ["display", "display", "result"])
    pieces, at = [], 0
    for size in reply.end["parts"]:
        pieces.append(reply.payload[at : at + size])
        at += size
    body, stdout, stderr, *shown = pieces
    assert at == len(reply.payload)
    assert (stdout, stderr) == (b"out\n", b"")
    assert [json.loads(one)["data"]["text/plain"] for one in shown] == ["1", "2", "3"]
    # Only what is worth saying of it.
    assert json.loads(body).keys() == {"exec", "stdout_bytes", "stdout_chars", "duration_ms", "cpu_ms"}
    # Later listeners get the events.
    again = client.wait(client.start("attach", exec="exe_whole"))
    assert [header["kind"] for header, _ in again.events] == ["display", "display", "display", "result"]


def test_what_is_too_large_for_one_answer_comes_in_events(client: Client) -> None:
    code = f"display('x' * {CHUNK}); 3"
    reply = client.wait(client.start_run(code, exec="exe_whole_large", stream=False, whole=True))

    assert [header["kind"] for header, _ in reply.events] == ["display", "display", "result"]
    assert reply.end == {"t": "ok", "id": reply.end["id"] if reply.end else None}
    assert reply.result["exit_code"] == 0


def test_who_leaves_before_the_answer_finds_the_execution_again(agent: RunningAgent, client: Client) -> None:
    os.mkfifo(os.path.join(agent.workspace, "door"))
    stream = client.start_run("read < door; echo on", kind="shell", exec="exe_whole_left", stream=False, whole=True)
    client.send({"t": "cancel", "id": stream})
    with open(os.path.join(agent.workspace, "door"), "w") as door:
        door.write("\n")

    assert client.wait(client.start("attach", exec="exe_whole_left")).result["stdout"] == "on\n"


def test_of_a_finished_execution_at_most_eight_mebibytes_are_kept(client: Client) -> None:
    client.run("head -c 20000000 /dev/zero", kind="shell", exec="exe_large")
    reply = client.wait(client.start("attach", exec="exe_large"))

    assert len(reply.output()) <= 8 << 20
    assert reply.events[0][1] != b""
    assert reply.events[0][0]["skipped"] + len(reply.output()) == 20_000_000


@pytest.mark.parametrize(
    "params",
    [
        {},
        {"exec": 7},
        {"exec": "a/b"},
        {"exec": "x", "kind": "magic"},
        {"exec": "x", "kind": ["cell"]},
        {"exec": "x", "kind": "argv"},
        {"exec": "x", "kind": "argv", "argv": [1]},
        {"exec": "x", "kind": "argv", "argv": ["a\0b"]},
        {"exec": "x", "timeout_ms": "soon"},
        {"exec": "x", "timeout_ms": -1},
        {"exec": "x", "stdin": 1},
        {"exec": "x", "env": {"A": 1}},
        {"exec": "x", "env": {"A=B": "1"}},
        {"exec": "x", "env": []},
        {"exec": "x", "output_bytes": 1 << 40},
        {"exec": "x", "output_bytes": True},
        {"exec": "x", "leftover": "maybe"},
        {"exec": "x", "cwd": 3},
        {"exec": "x", "kernel": "../x"},
        {"exec": "x", "whole": True},
        {"exec": "x", "whole": 1, "stream": False},
    ],
)
def test_nonsense_is_refused_with_a_sentence(client: Client, params: dict[str, object]) -> None:
    end = client.call("run", b"true", **params)

    assert end["code"] == "invalid_request"
    assert end["message"]


def test_code_that_is_not_text_is_refused(client: Client) -> None:
    assert client.call("run", b"\xff\xfe", exec="exe_bytes")["code"] == "invalid_request"
    assert client.call("run", b"a\0b", exec="exe_nul", kind="shell")["code"] == "invalid_request"
