"""Brokered secrets: the host they are for gets the value; no other host, no sandbox, no record and no log does."""

from __future__ import annotations

import base64
import gzip
import json
import logging
from typing import TYPE_CHECKING

import pytest

from security.egress_world import ELSEWHERE, PUBLIC, World, open_world, read_request
from warren.core.egress.control import NewSecret

if TYPE_CHECKING:
    import socket
    from collections.abc import Iterator

pytestmark = pytest.mark.root

VALUE = "sk-very-secret-0123456789abcdef"
OTHER = "another-secret-value-9876543210"


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory, images_dir: str, python_image: object) -> Iterator[World]:
    del python_image
    with open_world(tmp_path_factory.mktemp("world"), images_dir) as world:
        world.names |= {"api.example": [(PUBLIC,)], "other.example": [(ELSEWHERE,)]}
        yield world


@pytest.fixture
def heard(world: World) -> Iterator[list[bytes]]:
    """The host of the secret, over TLS; it answers with the request."""
    heads: list[bytes] = []

    def echo(connection: socket.socket) -> None:
        while head := read_request(connection):
            heads.append(head)
            body = head * 50 if b"/much" in head else gzip.compress(head) if b"/packed" in head else head
            more = b"Content-Encoding: gzip\r\n" if b"/packed" in head else b""
            if b"/moved" in head:
                more = b"Location: https://api.example/next\r\n"
            connection.sendall(
                b"HTTP/1.1 200 OK\r\nX-Echo: "
                + VALUE.encode()
                + b"\r\n%sContent-Length: %d\r\n\r\n%s" % (more, len(body), body)
            )

    with world.serve(world.secure(echo, "api.example"), port=443):
        yield heads


@pytest.fixture
def others(world: World) -> Iterator[list[bytes]]:
    """All others: another host, and the same host without TLS."""
    heads: list[bytes] = []

    def note(connection: socket.socket) -> None:
        while head := read_request(connection):
            heads.append(head)
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")

    with world.serve(note, ELSEWHERE), world.serve(note, PUBLIC):
        yield heads


@pytest.fixture
def sandbox(world: World) -> str:
    return world.create("rules", "api.example", "other.example")


def give(world: World, sandbox: str, value: str = VALUE, name: str = "API_KEY") -> str:
    """Let a sandbox use a secret, and return its placeholder."""
    new = NewSecret(name=name, value=value, hosts=("api.example",))
    return str(world.portal.call(world.service.egress.create_secret, world.caller, sandbox, new).placeholder)


def test_the_host_gets_the_value_over_tls(world: World, sandbox: str, heard: list[bytes], others: list[bytes]) -> None:
    placeholder = give(world, sandbox)
    basic = base64.b64encode(f"user:{placeholder}".encode()).decode()

    status, _ = world.get(sandbox, "http://api.example/a", Authorization=f"Bearer {placeholder}")
    again, _ = world.get(sandbox, "http://api.example/b", Authorization=f"Basic {basic}")

    assert (status, again) == (200, 200)
    assert f"Authorization: Bearer {VALUE}".encode() in heard[0]
    assert f"Basic {base64.b64encode(f'user:{VALUE}'.encode()).decode()}".encode() in heard[1]
    assert others == []
    rows = world.records(sandbox)
    assert [(row["port"], row["secrets"]) for row in rows] == [(443, ["API_KEY"])] * 2


def test_the_value_never_comes_back(world: World, sandbox: str, heard: list[bytes]) -> None:
    placeholder = give(world, sandbox)
    headers = f"Host: api.example\r\nX-Key: {placeholder}\r\nConnection: close\r\n"

    for path in ("much", "x"):
        said = world.say(sandbox, f"GET http://api.example/{path} HTTP/1.1\r\n{headers}\r\n".encode())
        assert said.startswith(b"HTTP/1.1 200")
        assert VALUE.encode() not in said
        assert placeholder.encode() in said

    assert VALUE.encode() in heard[0]
    assert b"accept-encoding: identity" in heard[0].lower()


def test_no_other_host_gets_it(world: World, sandbox: str, heard: list[bytes], others: list[bytes]) -> None:
    placeholder = give(world, sandbox)

    assert world.get(sandbox, "http://other.example/", Authorization=f"Bearer {placeholder}")[0] == 200
    tunnelled = world.say(
        sandbox,
        b"CONNECT other.example:80 HTTP/1.1\r\nHost: other.example:80\r\n\r\n",
        f"GET / HTTP/1.1\r\nHost: other.example\r\nX: {placeholder}\r\nConnection: close\r\n\r\n".encode(),
    )

    assert b"HTTP/1.1 200 OK" in tunnelled
    assert len(others) == 2
    assert not any(VALUE.encode() in head for head in others)
    assert all(placeholder.encode() in head for head in others)
    assert heard == []


def test_another_sandbox_cannot_use_it(world: World, sandbox: str, heard: list[bytes], others: list[bytes]) -> None:
    placeholder = give(world, sandbox)
    stranger = world.create("rules", "api.example")

    world.get(stranger, "http://api.example/", Authorization=f"Bearer {placeholder}")

    assert heard == []
    assert VALUE.encode() not in others[0]


def test_a_server_that_cannot_prove_who_it_is_gets_nothing(world: World, sandbox: str) -> None:
    placeholder = give(world, sandbox)
    seen: list[bytes] = []

    def note(connection: socket.socket) -> None:
        seen.append(read_request(connection))

    with world.serve(world.secure(note, "another.example"), port=443):
        status, text = world.get(sandbox, "http://api.example/", Authorization=f"Bearer {placeholder}")

    assert status == 502
    assert "TLS" in text
    assert seen == []


def test_a_redirect_to_the_same_host_stays_with_us(world: World, sandbox: str, heard: list[bytes]) -> None:
    give(world, sandbox)

    said = world.say(
        sandbox, b"GET http://api.example/moved HTTP/1.1\r\nHost: api.example\r\nConnection: close\r\n\r\n"
    )

    assert b"Location: http://api.example/next\r\n" in said
    assert len(heard) == 1


def test_a_new_value_is_used_at_once_and_none_after_it_is_taken_back(
    world: World, sandbox: str, heard: list[bytes], others: list[bytes]
) -> None:
    placeholder = give(world, sandbox)
    world.get(sandbox, "http://api.example/", X=placeholder)
    placeholder = give(world, sandbox, OTHER)
    world.get(sandbox, "http://api.example/", X=placeholder)
    world.portal.call(world.service.egress.delete_secret, world.caller, sandbox, "API_KEY")
    world.get(sandbox, "http://api.example/", X=placeholder)

    assert VALUE.encode() in heard[0]
    assert OTHER.encode() in heard[1]
    assert VALUE.encode() not in heard[1]
    assert len(heard) == 2
    assert OTHER.encode() not in others[0]


def test_it_is_in_no_record_and_no_log(
    world: World, sandbox: str, heard: list[bytes], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    placeholder = give(world, sandbox)
    world.get(sandbox, f"http://api.example/?key={placeholder}", Authorization=f"Bearer {placeholder}")
    env = world.run(sandbox, "import os, json; print(json.dumps(dict(os.environ)))").stdout.decode()

    rows = json.dumps(world.records(sandbox))

    assert heard
    for text in (rows, env, caplog.text):
        assert VALUE not in text
    assert "?key" not in rows
