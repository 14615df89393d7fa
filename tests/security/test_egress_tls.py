"""TLS through egress: under rules it names the requested host in the clear, or it is refused."""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING

import pytest

from security.egress_world import PUBLIC, World, open_world, say_hello

if TYPE_CHECKING:
    import socket
    from collections.abc import Iterator

pytestmark = pytest.mark.root

CONNECT = b"CONNECT good.example:443 HTTP/1.1\r\nHost: good.example:443\r\n\r\n"
DENIED = bytes((21, 3, 1, 0, 2, 2, 49))


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory, images_dir: str, python_image: object) -> Iterator[World]:
    del python_image
    with open_world(tmp_path_factory.mktemp("world"), images_dir) as world:
        world.names |= {"good.example": [(PUBLIC,)], "evil.example": [(PUBLIC,)]}
        with world.serve(world.secure(say_hello, "good.example", "evil.example"), port=443):
            yield world


@pytest.fixture(scope="module")
def ruled(world: World) -> str:
    return world.create("rules", "good.example", ports=(80, 443, 8443))


@pytest.fixture(scope="module")
def free(world: World) -> str:
    return world.create("open")


def hello(name: str | None) -> bytes:
    """Return what a real client says first."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    outgoing = ssl.MemoryBIO()
    client = context.wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname=name)
    with pytest.raises(ssl.SSLWantReadError):
        client.do_handshake()
    return outgoing.read()


def in_records(said: bytes, size: int) -> bytes:
    """Cut a ClientHello into many records."""
    message = said[5:]
    pieces = [message[at : at + size] for at in range(0, len(message), size)]
    return b"".join(b"\x16\x03\x01" + len(piece).to_bytes(2) + piece for piece in pieces)


def with_extension(said: bytes, kind: int, content: bytes = b"\0" * 8) -> bytes:
    """Add an extension to a ClientHello, at its end."""
    added = kind.to_bytes(2) + len(content).to_bytes(2) + content
    body = bytearray(said[9:])
    at = 34 + 1 + body[34]
    at += 2 + int.from_bytes(body[at : at + 2])
    at += 1 + body[at]
    size = int.from_bytes(body[at : at + 2]) + len(added)
    body[at : at + 2] = size.to_bytes(2)
    body += added
    return b"\x16\x03\x01" + (len(body) + 4).to_bytes(2) + b"\x01" + len(body).to_bytes(3) + bytes(body)


GOOD, EVIL = hello("good.example"), hello("evil.example")

NOT_FOR_THE_HOST = {
    "another name": EVIL,
    "another name, in small records": in_records(EVIL, 7),
    "no name": hello(None),
    "an encrypted name besides the right one": with_extension(GOOD, 0xFE0D),
    "the draft of an encrypted name": with_extension(GOOD, 0xFFCE),
    "a name twice": with_extension(GOOD, 0, EVIL[EVIL.index(b"evil.example") - 5 :][: 5 + 12]),
    "no TLS": b"GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n",
    "another protocol": b"SSH-2.0-OpenSSH_9.9\r\n",
    "the old version": b"\x80\x2e\x01\x03\x01" + bytes(43),
    "a record of nothing": b"\x16\x03\x01\x00\x00" + GOOD,
    "an alert first": b"\x15\x03\x01\x00\x02\x01\x00" + GOOD,
    "another handshake": b"\x16\x03\x01\x00\x04\x02\x00\x00\x00",
    "one that is too long": b"\x16\x03\x01\x40\x00\x01\xff\xff\xff"
    + bytes(16_380)
    + b"\x16\x03\x01\x40\x00"
    + bytes(16_384),
}


@pytest.mark.parametrize("what", NOT_FOR_THE_HOST)
def test_what_is_not_for_the_host_is_not_passed_on(world: World, ruled: str, what: str) -> None:
    told = world.say(ruled, CONNECT + NOT_FOR_THE_HOST[what])

    assert told.startswith(b"HTTP/1.1 200")
    assert told.partition(b"\r\n\r\n")[2] == DENIED
    row = world.records(ruled)[-1]
    assert (row["verdict"], row["rule"], row["host"]) == ("refused", "server name", "good.example")


@pytest.mark.parametrize("size", [1, 5, 100, 100_000])
def test_what_is_for_the_host_passes_however_it_is_cut(world: World, ruled: str, size: int) -> None:
    recorded = in_records(GOOD, 50)
    pieces = [recorded[at : at + size] for at in range(0, len(recorded), size)]

    told = world.say(ruled, CONNECT, *pieces, b"\x15\x03\x03\x00\x02\x02\x00")

    answer = told.partition(b"\r\n\r\n")[2]
    assert answer[:1] == b"\x16", "the server's own handshake"
    assert answer[5:6] == b"\x02"


def test_a_second_hello_is_looked_at_like_the_first(world: World, ruled: str) -> None:
    """A server may ask for another one; a client that then names another host reaches none."""
    connect = CONNECT.replace(b":443", b":8443")
    # A client offers a key for the first curve of its list, and this server takes another one of it only.
    with world.serve(world.secure(say_hello, "good.example", curve="prime256v1"), port=8443):
        read = world.python(ruled, _READ.format(authority=world.authority.text, url="https://good.example:8443/y"))
        told = world.say(ruled, connect + GOOD, b"\x14\x03\x03\x00\x01\x01" + EVIL)
        early = world.say(ruled, connect + GOOD + EVIL)

    assert read.startswith("GET /y HTTP/1.1")
    for each in (told, early):
        assert bytes.fromhex("cf21ad74e59a6111be1d8c021e65b891") in each, "the server asked again"
        assert each.endswith(DENIED)
    assert world.records(ruled)[-1]["server_name"] == "evil.example"


def test_rules_of_a_glob_are_for_the_name_that_was_asked_for(world: World) -> None:
    """Also where another name would be allowed by itself: each connection is for one host."""
    sandbox = world.create("rules", "*.example")

    told = world.say(sandbox, CONNECT + EVIL)

    assert told.endswith(DENIED)


def test_with_open_egress_tls_is_not_inspected(world: World, free: str) -> None:
    for said in (EVIL, hello(None), with_extension(GOOD, 0xFE0D)):
        told = world.say(free, CONNECT + said + b"\x15\x03\x03\x00\x02\x02\x00")
        assert told.partition(b"\r\n\r\n")[2][:1] in {b"\x16", b"\x15"}
        assert DENIED not in told


def test_over_socks_it_is_the_same(world: World, ruled: str) -> None:
    ask = b"\x05\x01\x00\x05\x01\x00\x03\x0cgood.example\x01\xbb"

    assert world.say(ruled, ask + EVIL).endswith(DENIED)
    assert world.say(ruled, ask + GOOD + b"\x15\x03\x03\x00\x02\x02\x00")[12:13] == b"\x16"


def test_real_clients_speak_tls_to_whom_they_asked_for(world: World, ruled: str) -> None:
    read = world.python(ruled, _READ.format(authority=world.authority.text, url="https://good.example/x"))

    assert read.startswith("GET /x HTTP/1.1")
    assert world.records(ruled)[-1]["verdict"] == "allowed"


def test_tls_on_another_port_that_a_rule_names_is_for_the_host_too(world: World, ruled: str) -> None:
    def tell(connection: socket.socket) -> None:
        connection.sendall(b"heard " + connection.recv(5))

    connect = CONNECT.replace(b":443", b":8443")
    with world.serve(tell, port=8443):
        assert world.say(ruled, connect + EVIL).endswith(DENIED)
        assert world.say(ruled, connect + GOOD).endswith(b"heard \x16\x03\x01" + GOOD[3:5])
        assert world.say(ruled, connect + b"plain").endswith(b"heard plain")


_READ = """
import json, ssl, urllib.request
context = ssl.create_default_context(cadata={authority!r})
print(json.dumps(urllib.request.urlopen({url!r}, context=context, timeout=20).read().decode()))
"""
