"""Terminals: a real PTY, typed into and looked at over the wire."""

from __future__ import annotations

from typing import Any

from unit.guest.agent_client import Client, RunningAgent, has_ended, ignored_signals, until
from warren.guest.wire.frames import WINDOW


def _open(client: Client, name: str, *argv: str, **params: Any) -> int:
    return client.start("terminal.open", terminal=name, argv=list(argv), **params)


def test_a_program_on_a_terminal_sees_one_and_its_size(client: Client) -> None:
    stream = _open(client, "size", "bash", "-c", "test -t 0 && stty size; tput cols", cols=100, rows=30)
    reply = client.wait(stream)

    assert b"30 100\r\n100\r\n" in bytes(reply.data)
    assert reply.end == {"t": "ok", "id": stream, "exit_code": 0}


def test_what_is_typed_reaches_the_program_and_control_c_interrupts_it(client: Client) -> None:
    stream = _open(client, "typed", "bash", "--norc", "-i", env={"PS1": "ready> "})
    client.wait_for(stream, lambda reply: reply.data.count(b"ready> ") == 1)
    client.send({"t": "data", "id": stream}, b"bash -c 'echo $((6*7)); exec sleep 1000'\n")
    client.wait_for(stream, lambda reply: b"42\r\n" in reply.data)
    client.send({"t": "data", "id": stream}, b"\x03")
    client.wait_for(stream, lambda reply: reply.data.count(b"ready> ") == 2)
    client.send({"t": "data", "id": stream}, b"exit 9\n")

    assert (client.wait(stream).end or {})["exit_code"] == 9


def test_another_stream_gets_the_scroll_back_and_may_type_too(agent: RunningAgent, client: Client) -> None:
    stream = _open(client, "shared", "bash", "-c", "echo before; read line; echo got $line")
    client.wait_for(stream, lambda reply: b"before" in reply.data)
    other = agent.connect()
    looking = other.start("terminal.attach", terminal="shared")
    other.wait_for(looking, lambda reply: b"before" in reply.data)
    other.send({"t": "data", "id": looking}, b"hello\n")

    assert b"got hello" in client.wait(stream).data
    assert b"got hello" in other.wait(looking).data
    other.close()


def test_it_lives_on_without_its_connection(agent: RunningAgent, client: Client) -> None:
    first = agent.connect()
    stream = first.start("terminal.open", terminal="kept", argv=["bash", "-c", "echo up; read line; echo $line"])
    first.wait_for(stream, lambda reply: b"up" in reply.data)
    first.close()
    again = client.start("terminal.attach", terminal="kept")
    client.wait_for(again, lambda reply: b"up" in reply.data)
    client.send({"t": "data", "id": again}, b"back\n")

    assert b"back" in client.wait(again).data


def test_it_can_be_resized(client: Client) -> None:
    stream = _open(client, "grow", "bash", "-c", "trap 'stty size' WINCH; echo up; while true; do sleep 0.02; done")
    client.wait_for(stream, lambda reply: b"up" in reply.data)

    assert client.call("terminal.resize", terminal="grow", cols=77, rows=11)["t"] == "ok"
    client.wait_for(stream, lambda reply: b"11 77" in reply.data)
    client.call("terminal.close", terminal="grow")
    client.wait(stream)


def test_closing_ends_a_program_that_ignores_the_hang_up(client: Client) -> None:
    stream = _open(client, "stubborn", "bash", "-c", "trap '' HUP; echo pid $$; while true; do sleep 0.1; done")
    reply = client.wait_for(stream, lambda reply: b"\r\n" in reply.data)
    pid = int(bytes(reply.data).split()[1])
    client.call("terminal.close", terminal="stubborn")

    assert (client.wait(stream).end or {})["exit_code"] == -9
    until(lambda: has_ended(pid))


def test_scroll_back_is_bounded_and_holds_the_end(agent: RunningAgent, client: Client) -> None:
    stream = _open(client, "long", "bash", "-c", "seq 1 100000; echo last; read line")
    client.wait_for(stream, lambda reply: b"last\r\n" in reply.data)
    other = agent.connect()
    looking = other.start("terminal.attach", terminal="long")
    reply = other.wait_for(looking, lambda reply: b"last\r\n" in reply.data)

    assert len(reply.data) <= 256 << 10
    assert bytes(reply.data).endswith(b"100000\r\nlast\r\n")
    client.send({"t": "data", "id": stream}, b"\n")
    client.wait(stream)
    other.close()


def test_it_inherits_nothing_of_the_agent(client: Client) -> None:
    code = "ls -1 /proc/self/fd; grep -E 'Sig(Ign|Blk)' /proc/self/status; env"
    reply = client.wait(_open(client, "clean", "bash", "-c", code, env={"MINE": "1"}))

    lines = bytes(reply.data).decode().splitlines()
    assert [line for line in lines if line.isdigit()] == ["0", "1", "2", "3"]
    assert ignored_signals(bytes(reply.data).decode()) == 0
    assert "SigBlk:\t0000000000000000" in lines
    assert "MINE=1" in lines
    assert not any(line.startswith(("VIRTUAL_ENV", "PYTEST")) for line in lines)


def test_a_program_that_is_not_there_ends_with_127(client: Client) -> None:
    reply = client.wait(_open(client, "missing", "no-such-program"))

    assert (reply.end or {})["exit_code"] == 127
    assert b"no-such-program" in reply.data


def test_names_are_used_once_and_nonsense_is_refused(client: Client) -> None:
    stream = _open(client, "twice", "cat")

    assert client.call("terminal.open", terminal="twice")["code"] == "conflict"
    assert client.call("terminal.open", terminal="a/b")["code"] == "invalid_request"
    assert client.call("terminal.open", terminal="t", cols=0)["code"] == "invalid_request"
    assert client.call("terminal.open", terminal="t", cwd="missing")["code"] == "invalid_request"
    assert client.call("terminal.attach", terminal="none")["code"] == "not_found"
    client.call("terminal.close", terminal="twice")
    client.wait(stream)


def test_a_viewer_without_credit_is_shown_the_end_once_it_has_some(client: Client) -> None:
    stream = _open(client, "flood", "bash", "-c", "head -c 4000000 /dev/zero | tr '\\0' x; echo; echo last")
    reply = client.wait_for(stream, lambda reply: len(reply.data) >= WINDOW)
    assert len(reply.data) == WINDOW
    until(lambda: client.call("terminal.resize", terminal="flood")["t"] == "err")
    assert reply.end is None
    client.send({"t": "credit", "id": stream, "n": 1 << 20})

    assert bytes(client.wait(stream).data).endswith(b"last\r\n")


def test_who_opens_one_that_is_there_may_join_it_with_another_size(agent: RunningAgent, client: Client) -> None:
    stream = _open(client, "join", "bash", "-c", "trap 'stty size' WINCH; echo up; while true; do sleep 0.02; done")
    first = client.wait_for(stream, lambda reply: b"up" in reply.data)
    other = agent.connect()
    joined = other.start("terminal.open", terminal="join", argv=["false"], attach=True, cols=50, rows=10)
    reply = other.wait_for(joined, lambda reply: b"10 50" in reply.data)
    listed = client.call("terminals")["terminals"]

    assert first.events[0][0] | {"id": 0} == {
        "t": "event",
        "id": 0,
        "kind": "attached",
        "created": True,
        "scrollback": 0,
    }
    assert (reply.events[0][0]["created"], reply.events[0][0]["scrollback"]) == (False, len("up\r\n"))
    assert [(each["name"], each["program"], each["viewers"]) for each in listed] == [("join", "bash", 2)]
    assert (listed[0]["cols"], listed[0]["rows"]) == (50, 10)
    client.call("terminal.close", terminal="join")
    other.wait(joined)
    other.close()


def test_a_full_screen_program_redraws_for_a_new_viewer(agent: RunningAgent, client: Client) -> None:
    code = "trap 'echo drawn' WINCH; echo up; while true; do sleep 0.02; done"
    stream = _open(client, "draw", "bash", "-c", code)
    client.wait_for(stream, lambda reply: b"up" in reply.data)
    other = agent.connect()
    looking = other.start("terminal.attach", terminal="draw")

    other.wait_for(looking, lambda reply: b"drawn" in reply.data)
    client.call("terminal.close", terminal="draw")
    other.wait(looking)
    other.close()


def test_only_so_many_look_at_one_terminal(client: Client) -> None:
    stream = _open(client, "crowd", "cat")
    for _ in range(63):
        client.start("terminal.attach", terminal="crowd")

    assert client.call("terminal.attach", terminal="crowd")["code"] == "conflict"
    client.call("terminal.close", terminal="crowd")
    client.wait(stream)


def test_a_small_window_is_kept_to_and_nonsense_is_the_usual_one(client: Client) -> None:
    for window, most in ((1000, 1000), (0, WINDOW), (-5, WINDOW), (1 << 40, WINDOW), ("x", WINDOW), (True, WINDOW)):
        code = "head -c 4000000 /dev/zero | tr '\\0' x; read line"
        stream = _open(client, "narrow", "bash", "-c", code, window=window)
        reply = client.wait_for(stream, lambda reply, most=most: len(reply.data) >= most)
        client.call("terminals")

        assert len(reply.data) == most
        client.call("terminal.close", terminal="narrow")
        client.send({"t": "credit", "id": stream, "n": 8 << 20})
        client.wait(stream)
