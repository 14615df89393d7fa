"""Limits of one sandbox's egress: connections, bytes, memory, time; and connections that a new policy ends."""

from __future__ import annotations

import json
import os
import threading
from typing import TYPE_CHECKING, Any

import pytest

from security.egress_world import DEADLINE_S, PUBLIC, World, open_world, read_head, say_hello
from warren.core.egress.control import NewGrant
from warren.core.sandboxes.changes import SandboxChanges
from warren.domain.egress import Egress, EgressMode, EgressRule
from warren.domain.values import ExecKind, ExecRequest, new_id

if TYPE_CHECKING:
    import socket
    from collections.abc import Iterator

pytestmark = pytest.mark.root

MB = 1_000_000


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory, images_dir: str, python_image: object) -> Iterator[World]:
    del python_image
    limits = {"connections": 4, "per_minute": 240, "bytes_per_hour": 200 * MB, "answer_s": 3}
    with open_world(tmp_path_factory.mktemp("world"), images_dir, **limits) as world:
        world.names |= {"good.example": [(PUBLIC,)]}
        yield world


class Held:
    """A server that says something and then waits; it tells when its client is gone."""

    def __init__(self) -> None:
        self.begun = threading.Semaphore(0)
        self.ended = threading.Semaphore(0)

    def __call__(self, connection: socket.socket) -> None:
        read_head(connection)
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nbegun")
        self.begun.release()
        connection.recv(1)
        self.ended.release()


def start(world: World, sandbox: str, code: str) -> None:
    """Start a program that goes on."""
    request = ExecRequest(id=new_id("exe"), kind=ExecKind.SHELL, code=f"python -c '{code}' > said 2>&1 &")
    world.portal.call(world._run, sandbox, request)


FOLLOW = """
import http.client
connection = http.client.HTTPConnection("127.0.0.1", 3128)
connection.request("GET", "http://good.example/")
answer = connection.getresponse()
answer.read()
"""


def open_one(world: World, sandbox: str, held: Held) -> None:
    start(world, sandbox, FOLLOW.replace("'", '"'))
    assert held.begun.acquire(timeout=DEADLINE_S)


def change(world: World, sandbox: str, egress: Egress) -> None:
    world.portal.call(world.service.sandboxes.update, world.caller, sandbox, SandboxChanges(egress=egress))


def test_a_new_policy_ends_what_it_does_not_allow_and_nothing_else(world: World) -> None:
    sandbox, held = world.create("rules", "good.example"), Held()
    with world.serve(held):
        open_one(world, sandbox, held)
        change(world, sandbox, Egress(mode=EgressMode.OPEN))
        assert world.get(sandbox, "http://127.0.0.1/")[0] == 403
        assert not held.ended.acquire(blocking=False)
        change(world, sandbox, Egress(mode=EgressMode.NONE))

        assert held.ended.acquire(timeout=DEADLINE_S)
    assert world.records(sandbox)[-1]["outcome"] == "cut"
    assert world.get(sandbox, "http://good.example/")[0] == 403


def test_what_a_grant_allowed_ends_with_it(world: World) -> None:
    sandbox, held = world.create("none"), Held()
    new = NewGrant(rule=EgressRule(host="good.example"), expires_in_s=6)
    with world.serve(held):
        world.portal.call(world.service.egress.grant, world.caller, sandbox, new)
        open_one(world, sandbox, held)

        assert held.ended.acquire(timeout=DEADLINE_S)
    assert [row["outcome"] for row in world.records(sandbox)][-1] == "cut"


def test_a_sandbox_that_ends_takes_its_connections_with_it(world: World) -> None:
    sandbox, held = world.create("rules", "good.example"), Held()
    with world.serve(held):
        open_one(world, sandbox, held)
        world.delete(sandbox)

        assert held.ended.acquire(timeout=DEADLINE_S)


def test_connections_beyond_the_limit_wait_and_other_sandboxes_do_not(world: World) -> None:
    sandbox, other, held = world.create("rules", "good.example"), world.create("rules", "good.example"), Held()
    with world.serve(held):
        for _ in range(4):
            open_one(world, sandbox, held)
        start(world, sandbox, FOLLOW)
        assert not held.begun.acquire(timeout=0.3)
        open_one(world, other, held)

        change(world, sandbox, Egress(mode=EgressMode.NONE))
        assert world.shell(sandbox, "while ! grep -q . said; do :; done; echo read")[1] == "read\n"


def test_too_many_connections_in_a_minute_are_refused_with_a_sentence(world: World) -> None:
    sandbox = world.create("rules", "good.example")
    ask = "Host: bad.example\r\n\r\n".join(["GET http://bad.example/ HTTP/1.1\r\n"] * 100 + [""])
    said = world.say(
        sandbox,
        ask.encode(),
        b"GET http://bad.example/ HTTP/1.1\r\nConnection: close\r\n",
        b"Host: bad.example\r\n\r\n",
    )

    statuses = [each[:3] for each in said.split(b"HTTP/1.1 ")[1:]]
    assert set(statuses) == {b"403", b"429"}
    assert b"240 connections a minute" in said
    (first,) = world.records(sandbox)
    assert first["verdict"] == "refused"


def test_bytes_beyond_the_limit_end_the_connection(world: World) -> None:
    sandbox = world.create("rules", "good.example")

    def flood(connection: socket.socket) -> None:
        read_head(connection)
        connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
        while True:
            connection.sendall(bytes(MB))

    with world.serve(flood):
        code, said = world.shell(sandbox, "curl -sS http://good.example/ | wc -c")

    assert code == 0
    size = int(said.split()[-1])
    assert 150 * MB < size <= 201 * MB
    assert world.records(sandbox)[-1]["outcome"] == "limit"


def memory_mb() -> float:
    with open("/proc/self/statm", "rb") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


def test_unread_connections_hold_little_memory(world: World) -> None:
    """Inside and outside: four unread connections, with megabytes to come on each."""
    inside, outside = world.create("rules", "good.example"), world.create("rules", "good.example")
    sent: list[int] = []
    stuck, done = threading.Semaphore(0), threading.Event()

    def pour(connection: socket.socket) -> None:
        head = read_head(connection)
        if head.startswith(b"POST"):
            stuck.release()
            done.wait(DEADLINE_S)
            return
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 40000000\r\n\r\n")
        connection.settimeout(1)
        size = 0
        try:
            while size < 40 * MB:
                size += connection.send(bytes(65_536))
        except TimeoutError:
            sent.append(size)
            stuck.release()

    before = memory_mb()
    with world.serve(pour):
        for _ in range(4):
            start(world, inside, _UNREAD)
            start(world, outside, _UNHEARD)
        for _ in range(8):
            assert stuck.acquire(timeout=DEADLINE_S)
        grown = memory_mb() - before
        assert world.run(inside, "print(1 + 1)").stdout == b"2\n"
        done.set()

    assert len(sent) == 4
    assert grown < 60


def test_a_server_that_does_not_answer_is_given_up(world: World) -> None:
    sandbox = world.create("rules", "good.example")

    def wait(connection: socket.socket) -> None:
        read_head(connection)
        connection.recv(1)

    with world.serve(wait):
        status, text = world.get(sandbox, "http://good.example/")

    assert status == 504
    assert "did not answer in 3 s" in text


def test_a_connection_that_lasts_is_written_down_while_it_does(world: World) -> None:
    sandbox, held = world.create("rules", "good.example"), Held()
    with world.serve(held):
        open_one(world, sandbox, held)
        rows: list[dict[str, Any]] = []
        while not rows:
            rows = world.records(sandbox, "egress.open")
        change(world, sandbox, Egress(mode=EgressMode.NONE))

    assert (rows[0]["host"], rows[0]["outcome"]) == ("good.example", "open")


def test_every_sandbox_has_the_egress_proxy_which_says_why_it_refuses(world: World) -> None:
    sandbox = world.create("none")
    env = json.loads(world.run(sandbox, "import json, os; print(json.dumps(dict(os.environ)))").stdout)

    code, said = world.shell(sandbox, "curl -sS http://good.example/; curl -sS https://good.example/")

    assert env["HTTP_PROXY"] == env["https_proxy"] == "http://127.0.0.1:3128"
    assert code != 0
    assert "its egress is none" in said


def test_requests_after_each_other_on_one_connection_are_one_record(world: World) -> None:
    sandbox = world.create("rules", "good.example")
    ask = "GET http://good.example/?secret=1 HTTP/1.1\r\nHost: good.example\r\n{}\r\n"
    with world.serve(say_hello):
        said = world.say(sandbox, (ask.format("") * 9 + ask.format("Connection: close\r\n")).encode())

    assert said.count(b"HTTP/1.1 200 OK") == 10
    (row,) = world.records(sandbox)
    assert row["requests"] == 10
    assert row["bytes_out"] > 400
    assert row["bytes_in"] > 700
    assert row["duration_ms"] >= 0
    assert "secret" not in json.dumps(row)


_UNREAD = """
import socket, time
connection = socket.create_connection(("127.0.0.1", 3128))
connection.sendall(b"GET http://good.example/ HTTP/1.1\\r\\nHost: good.example\\r\\n\\r\\n")
time.sleep(30)
"""
_UNHEARD = """
import socket, time
connection = socket.create_connection(("127.0.0.1", 3128))
connection.sendall(b"POST http://good.example/ HTTP/1.1\\r\\nHost: good.example\\r\\n")
connection.sendall(b"Content-Length: 40000000\\r\\n\\r\\n")
connection.sendall(bytes(40000000))
"""
