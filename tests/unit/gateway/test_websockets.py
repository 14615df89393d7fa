"""The parts of a WebSocket that need no server: whose page opens it, where its key is, how many there are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from warren.domain.errors import Forbidden, Overloaded, QuotaExceeded
from warren.domain.records import Owner
from warren.gateway.api.websockets import Connections, check_origin, take_key

if TYPE_CHECKING:
    from starlette.types import Scope

ANN, BOB = Owner("tests", "ann"), Owner("tests", "bob")


@pytest.mark.parametrize(
    ("origin", "host"),
    [
        ("http://localhost:8000", "localhost:8000"),
        ("https://warren.example", "warren.example"),
        ("https://warren.example", "WARREN.example:443"),
        ("http://[::1]:8000", "[::1]:8000"),
        ("https://ide.example", "warren.example"),
    ],
)
def test_a_page_of_our_own_or_of_a_named_origin_may_open_one(origin: str, host: str) -> None:
    check_origin([(b"origin", origin.encode()), (b"host", host.encode())], ("https://ide.example",))


def test_a_program_that_is_no_page_says_no_origin() -> None:
    check_origin([(b"host", b"warren.example")], ())


@pytest.mark.parametrize(
    ("origin", "host"),
    [
        ("https://evil.example", "warren.example"),
        ("https://warren.example.evil.example", "warren.example"),
        ("https://warren.example:444", "warren.example"),
        ("http://localhost:3000", "localhost:8000"),
        ("null", "warren.example"),
        ("", ""),
        ("http://[", "["),
        ("http://a:99999999", "a:99999999"),
    ],
)
def test_a_foreign_page_is_refused(origin: str, host: str) -> None:
    with pytest.raises(Forbidden, match="web pages"):
        check_origin([(b"origin", origin.encode()), (b"host", host.encode())], ("https://ide.example",))


def test_a_key_among_the_subprotocols_is_taken_out_of_all_that_is_passed_on() -> None:
    scope = _scope("warren.v1", "warren.key.wrn_secret", "other")

    headers = take_key(scope)

    assert (b"authorization", b"Bearer wrn_secret") in headers
    assert scope["subprotocols"] == ["warren.v1", "other"]
    assert (b"sec-websocket-protocol", b"warren.v1, other") in scope["headers"]
    assert b"wrn_secret" not in repr(scope).encode()


def test_without_a_key_among_the_subprotocols_nothing_changes() -> None:
    scope = _scope("warren.v1")

    assert take_key(scope) == scope["headers"]
    assert scope["subprotocols"] == ["warren.v1"]


def test_connections_are_bounded_for_each_owner_and_in_all() -> None:
    connections = Connections(own=2, everybody=3)

    with connections.one(ANN), connections.one(ANN):
        with pytest.raises(QuotaExceeded, match="2 WebSockets"), connections.one(ANN):
            pass
        with connections.one(BOB), pytest.raises(Overloaded), connections.one(BOB):
            pass
    assert connections.open == 0
    with connections.one(ANN):
        assert connections.open == 1


def _scope(*subprotocols: str) -> Scope:
    offered: Any = ", ".join(subprotocols).encode()
    headers = [(b"host", b"localhost"), (b"sec-websocket-protocol", offered)]
    return {"type": "websocket", "headers": headers, "subprotocols": list(subprotocols)}
