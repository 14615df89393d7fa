"""Programs that violate HTTP or SOCKS: nothing of it reaches a server, and no other sandbox is affected."""

from __future__ import annotations

import base64
import threading
from typing import TYPE_CHECKING

import pytest

from security.egress_world import (
    DEADLINE_S,
    PUBLIC,
    World,
    open_world,
    parse_answer,
    read_head,
    read_request,
    say_hello,
)

if TYPE_CHECKING:
    import socket
    from collections.abc import Iterator

pytestmark = pytest.mark.root

HOST = b"Host: good.example\r\n"
START = b"GET http://good.example/ HTTP/1.1\r\n"
POST = b"POST http://good.example/ HTTP/1.1\r\n" + HOST

BAD = {
    "two lengths": POST + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\nab",
    "a length and chunks": POST + b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "chunks and a length": POST + b"Transfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n0\r\n\r\n",
    "chunks twice": POST + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "an odd coding": POST + b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
    "two codings": POST + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    "a space before the colon": POST + b"Content-Length : 4\r\n\r\nabcd",
    "a sign in a length": POST + b"Content-Length: +4\r\n\r\nabcd",
    "a negative length": POST + b"Content-Length: -1\r\n\r\n",
    "a NUL": START + HOST + b"X: a\0b\r\n\r\n",
    "chunks in the old version": POST.replace(b"1.1", b"1.0") + b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "no host": START + b"\r\n",
    "two hosts": START + HOST + b"Host: evil.example\r\n\r\n",
    "another host": START + b"Host: evil.example\r\n\r\n",
    "another port": START + b"Host: good.example:81\r\n\r\n",
    "a user": b"GET http://good.example@evil.example/ HTTP/1.1\r\n" + HOST + b"\r\n",
    "a user of the good one": b"GET http://evil.example@good.example/ HTTP/1.1\r\n" + HOST + b"\r\n",
    "a backslash": b"GET http://good.example\\@evil.example/ HTTP/1.1\r\n" + HOST + b"\r\n",
    "a fragment": b"GET http://good.example/#@evil.example HTTP/1.1\r\n" + HOST + b"\r\n",
    "an impossible port": b"GET http://good.example:99999/ HTTP/1.1\r\n" + HOST + b"\r\n",
    "another scheme": b"GET https://good.example/ HTTP/1.1\r\n" + HOST + b"\r\n",
    "a file": b"GET file:///etc/passwd HTTP/1.1\r\n" + HOST + b"\r\n",
    "no address": b"GET / HTTP/1.1\r\n" + HOST + b"\r\n",
    "a star": b"OPTIONS * HTTP/1.1\r\n" + HOST + b"\r\n",
    "the next version": b"GET http://good.example/ HTTP/2.0\r\n" + HOST + b"\r\n",
    "CONNECT without a port": b"CONNECT good.example HTTP/1.1\r\nHost: good.example\r\n\r\n",
    "CONNECT to an address": b"CONNECT http://good.example:80/ HTTP/1.1\r\nHost: good.example\r\n\r\n",
    "noise": bytes(range(32, 256)),
    "a head that is too long": START + HOST + b"X: " + b"y" * 200_000 + b"\r\n\r\n",
    "no end of a head": START + b"X: y\r\n" * 30_000,
}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory, images_dir: str, python_image: object) -> Iterator[World]:
    del python_image
    with open_world(tmp_path_factory.mktemp("world"), images_dir) as world:
        world.names |= {"good.example": [(PUBLIC,)], "evil.example": [(PUBLIC,)]}
        yield world


@pytest.fixture(scope="module")
def sandbox(world: World) -> str:
    return world.create("rules", "good.example", ports=(80, 443, 5432))


@pytest.fixture
def server(world: World) -> Iterator[list[bytes]]:
    """What a server was asked."""
    heads: list[bytes] = []

    def note(connection: socket.socket) -> None:
        while head := read_request(connection):
            heads.append(head)
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")

    with world.serve(note):
        yield heads


@pytest.mark.parametrize("what", BAD)
def test_what_could_be_read_in_two_ways_is_refused(world: World, sandbox: str, server: list[bytes], what: str) -> None:

    said = world.say(sandbox, BAD[what])

    assert said[9:12] in {b"400", b"431", b"501", b"505", b"403"}, said[:300]
    assert server == []


def test_one_request_does_not_hide_another(world: World, sandbox: str, server: list[bytes]) -> None:
    """What follows a request is the next one, decided by itself; what is in a body stays there."""
    hidden = b"GET http://evil.example/ HTTP/1.1\r\nHost: evil.example\r\n\r\n"

    said = world.say(
        sandbox,
        POST + b"Content-Length: %d\r\n\r\n" % len(hidden) + hidden,
        hidden,
        START + HOST + b"Connection: close, X-Mine\r\nX-Mine: 1\r\nProxy-Authorization: Basic eA==\r\nTE: gzip\r\n\r\n",
    )

    answers = [each[:3] for each in said.split(b"HTTP/1.1 ")[1:]]
    assert answers == [b"200", b"403", b"200"]
    assert len(server) == 2
    for unwanted in (b"X-Mine", b"Proxy-", b"TE:", b"evil"):
        assert unwanted.lower() not in server[1].lower()


def test_naming_a_header_as_ours_does_not_remove_what_frames_a_message(
    world: World, sandbox: str, server: list[bytes]
) -> None:

    said = world.say(sandbox, POST + b"Connection: close, content-length, host\r\nContent-Length: 4\r\n\r\nabcd")

    assert said.startswith(b"HTTP/1.1 200")
    assert b"content-length: 4" in server[0].lower()
    assert b"host: good.example" in server[0].lower()


def test_bodies_pass_in_chunks_both_ways_and_after_a_promise(world: World, sandbox: str) -> None:
    def echo(connection: socket.socket) -> None:
        head = read_head(connection)
        if b"100-continue" in head:
            connection.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
        said = b""
        while b"0\r\n\r\n" not in said:
            said += connection.recv(65_536)
        connection.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + said)

    with world.serve(echo):
        code, said = world.shell(
            sandbox,
            "head -c 300000 /dev/zero | tr '\\0' x > big; "
            "curl -sS -H 'Transfer-Encoding: chunked' -H 'Expect: 100-continue' --data-binary @big "
            "http://good.example/ -o back; cmp big back && echo same",
        )

    assert (code, said) == (0, "same\n")


def test_a_websocket_passes_where_it_is_plain_http(world: World, sandbox: str) -> None:
    def answer(connection: socket.socket) -> None:
        head = read_head(connection)
        if b"upgrade: websocket" in head.lower():
            connection.sendall(
                b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\nhi"
            )
            while data := connection.recv(100):
                connection.sendall(data.upper())
        else:
            connection.sendall(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: h2c\r\nConnection: Upgrade\r\n\r\nhi")

    def ask(word: bytes) -> bytes:
        return START + HOST + b"Connection: Upgrade, close\r\nUpgrade: " + word + b"\r\n\r\n"

    with world.serve(answer):
        said = world.python(sandbox, _TALK.format(head=ask(b"websocket"), word=b"more"))
        other = world.say(sandbox, ask(b"h2c"))

    head, _, rest = base64.b64decode(said).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 101")
    assert rest == b"hiMORE"
    assert parse_answer(other)[0] == 502


def test_a_tunnel_to_port_80_is_looked_at_request_by_request(world: World, sandbox: str, server: list[bytes]) -> None:
    """Some clients ask so for plain HTTP; what they say in there is for that host, or refused."""
    connect = b"CONNECT good.example:80 HTTP/1.1\r\nHost: good.example:80\r\n\r\n"

    fine = world.say(sandbox, connect + b"GET /x HTTP/1.1\r\nHost: good.example\r\nConnection: close\r\n\r\n")
    fronted = world.say(sandbox, connect + b"GET /x HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n")
    noise = world.say(sandbox, connect + b"SSH-2.0-x\r\n\r\n")

    assert fine.endswith(b"\r\n\r\nok")
    assert b"HTTP/1.1 400" in fronted
    assert b"HTTP/1.1 400" in noise
    assert len(server) == 1


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (b"\x05\x01\x00\x05\x01\x00\x03\x0cgood.example\x00\x50", b"\x05\x00\x05\x00"),
        (b"\x05\x02\x02\x00\x05\x01\x00\x03\x0cevil.example\x00\x50", b"\x05\x00\x05\x02"),
        (b"\x05\x01\x00\x05\x01\x00\x03\x05a..b.\x00\x50", b"\x05\x00\x05\x01"),
        (b"\x05\x01\x00\x05\x02\x00\x03\x0cgood.example\x00\x50", b"\x05\x00\x05\x07"),
        (b"\x05\x01\x02", b"\x05\xff"),
        (b"\x04\x01\x00\x50\x00\x00\x00\x01\x00good.example\x00", b"\x00\x5a"),
        (b"\x04\x01\x00\x50\x00\x00\x00\x01\x00evil.example\x00", b"\x00\x5b"),
        (b"\x04\x01\x00\x50\x5d\xb8\xd8\x22user\x00", b"\x00\x5b"),
        (b"\x05\x01\x00\x05\x01\x00\x09" + b"x" * 20, b"\x05\x00"),
        (b"\x04" + b"x" * 2000, b""),
    ],
)
def test_socks_in_all_its_versions(world: World, sandbox: str, server: list[bytes], said: bytes, told: bytes) -> None:
    del server
    ask = b"GET / HTTP/1.1\r\nHost: good.example\r\nConnection: close\r\n\r\n"

    answer = world.say(sandbox, said + ask)

    assert answer[: len(told)] == told
    is_open = told in {b"\x05\x00\x05\x00", b"\x00\x5a"}
    assert answer.endswith(b"ok") == is_open


def test_answers_that_are_not_http_end_in_a_sentence(world: World, sandbox: str) -> None:
    answers = [
        b"",
        b"SSH-2.0-OpenSSH\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
        b"HTTP/1.1 200 OK\r\nX: " + b"y" * 200_000,
        b"HTTP/1.1 100 Continue\r\n\r\n" * 50,
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
    ]
    waiting = list(answers)

    def answer(connection: socket.socket) -> None:
        read_head(connection)
        connection.sendall(waiting.pop(0))

    with world.serve(answer):
        for each in answers:
            status, text = world.get(sandbox, "http://good.example/")
            assert status == 502, each[:60]
            assert text.startswith("good.example:80 cannot be reached")


def test_an_answer_that_breaks_off_is_not_taken_for_a_whole_one(world: World, sandbox: str) -> None:
    def answer(connection: socket.socket) -> None:
        read_head(connection)
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nhalf")

    with world.serve(answer):
        code, said = world.shell(sandbox, "curl -sS http://good.example/")

    assert code == 18, said


def test_the_end_of_either_side_is_noticed(world: World, sandbox: str) -> None:
    asked, left = threading.Event(), threading.Event()

    def wait(connection: socket.socket) -> None:
        read_head(connection)
        asked.set()
        if not connection.recv(1):
            left.set()

    with world.serve(wait):
        world.shell(sandbox, "curl -sS http://good.example/ > /dev/null 2>&1 & echo $! > asking")
        assert asked.wait(DEADLINE_S)
        world.shell(sandbox, "kill $(cat asking)")
        assert left.wait(DEADLINE_S)
    assert world.records(sandbox)[-1]["outcome"] == "abandoned"


def test_a_port_that_a_rule_names_takes_any_protocol(world: World, sandbox: str) -> None:
    """Also one in which the server speaks first."""

    def greet(connection: socket.socket) -> None:
        connection.sendall(b"220 welcome\r\n")
        connection.sendall(b"you said " + connection.recv(100))

    with world.serve(greet, port=5432):
        said = world.python(
            sandbox,
            _TALK.format(head=b"CONNECT good.example:5432 HTTP/1.1\r\nHost: good.example:5432\r\n\r\n", word=b"this"),
        )

    assert base64.b64decode(said).endswith(b"220 welcome\r\nyou said this")


def test_methods_of_a_rule_are_held_to_also_on_a_connection_that_is_kept(world: World) -> None:
    sandbox = world.create("rules", "good.example", methods=("GET", "HEAD"))
    post = POST + b"Content-Length: 0\r\n\r\n"
    with world.serve(say_hello):
        said = world.say(sandbox, START + HOST + b"\r\n" + post + START + HOST + b"Connection: close\r\n\r\n")

    assert [each[:3] for each in said.split(b"HTTP/1.1 ")[1:] if each[3:4] == b" "] == [b"200", b"403", b"200"]
    assert world.say(sandbox, b"CONNECT good.example:443 HTTP/1.1\r\nHost: good.example:443\r\n\r\n")[9:12] == b"403"


_TALK = """
import base64, json, socket
connection = socket.create_connection(("127.0.0.1", 3128), 40)
connection.sendall({head!r})
received = b""
while not received.endswith((b"hi", b"welcome\\r\\n")):
    data = connection.recv(65536)
    assert data, received
    received += data
connection.sendall({word!r})
connection.shutdown(socket.SHUT_WR)
while data := connection.recv(65536):
    received += data
print(json.dumps(base64.b64encode(received).decode()))
"""
