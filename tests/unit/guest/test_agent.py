"""The agent's door: what it says, what it refuses, and that nothing sent to it ends it."""

from __future__ import annotations

import contextlib
import os
import signal
import struct
from typing import TYPE_CHECKING

import pytest

from unit.guest.agent_client import running_agent
from warren.guest.wire.frames import encode

if TYPE_CHECKING:
    from unit.guest.agent_client import Client, RunningAgent


def _frame(header: str, payload: bytes = b"") -> bytes:
    return struct.pack(">II", len(header), len(payload)) + header.encode() + payload


def test_it_says_hello_first(client: Client) -> None:
    assert client.hello["t"] == "hello"
    assert client.hello["version"] == 1
    assert client.hello["sandbox"] == "sbx_00000000"
    assert isinstance(client.hello["executions"], list)
    assert isinstance(client.hello["kernels"], list)


@pytest.mark.parametrize("op", ["nonsense", "", None, 7, ["run"], {"run": 1}, "__init__"])
def test_an_unknown_operation_is_refused(client: Client, op: object) -> None:
    assert client.call(op)["code"] == "invalid_request"  # type: ignore[arg-type]  # nonsense on purpose


@pytest.mark.parametrize(
    "garbage",
    [
        bytes(range(256)) * 16,
        b"GET / HTTP/1.1\r\n\r\n",
        struct.pack(">II", 0xFFFFFFFF, 0xFFFFFFFF),
        struct.pack(">II", 0, 0),
        struct.pack(">II", 16, (4 << 20) + 1),
        _frame("[]"),
        _frame("{}"),
        _frame('{"t": 1}'),
        _frame('{"t": "req", "id": "x"}'),
        _frame('{"t": "req", "id": -1, "op": "kernels"}'),
        _frame('{"t": "req", "id": 2, "op": "kernels"}'),
        _frame('{"t": "req", "id": 1e3, "op": "kernels"}'),
        _frame('{"t": "req", "id": NaN, "op": "kernels"}'),
        _frame("[" * 60_000),
        _frame('{"t": "req", "id": 1, "op": "run", "stdin": true, "kind": "shell", "exec": "g1"}', b"cat")
        + _frame('{"t": "req", "id": 1, "op": "kernels"}'),
        _frame('{"t": "req", "id": 1, "op": "run", "stdin": true, "kind": "shell", "exec": "g2"}', b"cat")
        + _frame('{"t": "credit", "id": 1, "n": "lots"}'),
        _frame('{"t": "req", "id": 1, "op": "run", "stdin": true, "kind": "shell", "exec": "g3"}', b"cat")
        + _frame('{"t": "data", "id": 1}', b"x" * (300 << 10)),
        b"".join(
            [
                _frame('{"t": "req", "id": 1, "op": "run", "stdin": true, "kind": "shell", "exec": "g4"}', b"sleep 2"),
                *[_frame('{"t": "data", "id": 1}', b"x" * (256 << 10))] * 9,
            ]
        ),
    ],
    ids=range(18),
)
def test_a_peer_that_breaks_the_protocol_loses_its_connection_and_no_other_does(
    agent: RunningAgent, client: Client, garbage: bytes
) -> None:
    bad = agent.connect()
    with contextlib.suppress(ConnectionError):
        bad.socket.sendall(garbage)
    with pytest.raises((EOFError, ConnectionError)):
        bad.call("kernels")
    bad.close()

    assert client.call("kernels")["t"] == "ok"


def test_half_a_frame_blocks_no_other_connection(agent: RunningAgent, client: Client) -> None:
    bad = agent.connect()
    bad.socket.sendall(_frame('{"t": "req", "id": 1, "op": "kernels"}')[:20])

    assert client.call("kernels")["t"] == "ok"
    bad.close()
    assert client.call("kernels")["t"] == "ok"


def test_frames_for_streams_that_are_not_there_are_ignored(client: Client) -> None:
    for kind in ("data", "eof", "credit", "cancel", "unheard-of", "ok"):
        client.send({"t": kind, "id": 4711, "n": 5}, b"x")

    assert client.call("kernels")["t"] == "ok"


def test_a_ping_is_answered(client: Client) -> None:
    client.send({"t": "ping"})

    assert client._receive()[0] == {"t": "pong"}


def test_a_flood_of_requests_is_answered_one_by_one(client: Client) -> None:
    streams = [client.start("kernels") for _ in range(3000)]

    assert all((client.wait(stream).end or {})["t"] == "ok" for stream in streams)


def test_too_many_streams_are_refused_and_the_others_go_on(agent: RunningAgent) -> None:
    client = agent.connect()
    client.run("true", kind="shell", exec="exe_held")
    stream = client.start_run("read line", kind="shell", stdin=True, exec="exe_reader")
    listeners = [client.start("attach", exec="exe_reader") for _ in range(1100)]
    refused = client.wait(listeners[-1]).end

    assert refused is not None
    assert refused["code"] == "conflict"
    client.send({"t": "eof", "id": stream})
    client.wait(stream)
    client.close()


def test_many_connections_are_served_and_the_oldest_makes_room(agent: RunningAgent) -> None:
    clients = [agent.connect() for _ in range(70)]

    assert clients[-1].call("kernels")["t"] == "ok"
    with pytest.raises((EOFError, ConnectionError)):
        clients[0].call("kernels")
    for client in clients:
        client.close()


def test_signals_that_user_code_can_send_do_nothing(agent: RunningAgent, client: Client) -> None:
    for number in sorted(signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}):
        if number not in _SYNCHRONOUS:
            os.kill(agent.process.pid, number)
            assert client.call("kernels")["t"] == "ok"


_SYNCHRONOUS = {signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGABRT, signal.SIGTRAP}
_SYNCHRONOUS |= {signal.SIGSYS, signal.SIGSTKFLT}
"""Process 1 of a sandbox is safe from these by the kernel's rule for process 1; here the agent is an ordinary one."""


def test_it_cannot_be_looked_into(agent: RunningAgent) -> None:
    assert os.stat(f"/proc/{agent.process.pid}/environ").st_uid == 0
    with open(f"/proc/{agent.process.pid}/status") as status:
        assert "Threads:\t1\n" in status.read()


def test_limits_and_environment_can_be_configured_later(client: Client) -> None:
    assert client.call("configure", env={"LATER": "x"}, limits={"memory_bytes": 1 << 30})["t"] == "ok"
    assert client.call("configure", env={"LATER": 5})["code"] == "invalid_request"
    assert client.call("configure", limits={"memory_bytes": "big"})["code"] == "invalid_request"
    assert client.run("echo $LATER", kind="shell")["stdout"] == "x\n"


def test_a_peer_that_never_reads_blocks_no_other(agent: RunningAgent, client: Client) -> None:
    deaf = agent.connect()
    deaf.socket.sendall(b"".join(encode({"t": "ping"})) * 50_000)

    assert client.call("kernels")["t"] == "ok"
    deaf.close()


def test_for_a_single_use_it_has_one_process_beside_itself_which_runs_the_code() -> None:
    with running_agent(single_use=True) as agent, contextlib.closing(agent.connect()) as client:
        ran = client.run("import os; print(os.getpid())", kind="cell", checkpoint=False)
        with open(f"/proc/{agent.process.pid}/task/{agent.process.pid}/children") as file:
            children = file.read().split()

    assert children == [ran["stdout"].strip()]
