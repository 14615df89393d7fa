"""Whose address a request has when it comes through proxies, and when a client pretends that it does."""

from __future__ import annotations

from typing import Any

import anyio
import anyio.lowlevel
import pytest

from warren.gateway.middleware.forwarded import MAX_HOPS, trust_proxies

TRUSTED = ("127.0.0.1", "10.0.0.0/8", "fd00::/8")


def address_of(client: tuple[str, int] | None, *forwarded: str, trusted: tuple[str, ...] = TRUSTED) -> str | None:
    """Send a request through and say whose address the application sees."""
    seen: list[Any] = []

    async def app(scope: Any, _receive: Any, _send: Any) -> None:
        await anyio.lowlevel.checkpoint()
        seen.append(scope["client"])

    headers = [(b"host", b"x"), *((b"x-forwarded-for", value.encode()) for value in forwarded)]
    scope: Any = {"type": "http", "scheme": "http", "client": client, "headers": headers}
    through: Any = trust_proxies(app, trusted)
    anyio.run(through, scope, None, None)
    return None if seen[0] is None else str(seen[0][0])


@pytest.mark.parametrize(
    ("peer", "forwarded", "seen"),
    [
        ("127.0.0.1", ("203.0.113.7",), "203.0.113.7"),
        ("::ffff:127.0.0.1", ("203.0.113.7",), "203.0.113.7"),
        ("fd00::1", ("2001:db8::7",), "2001:db8::7"),
        ("127.0.0.1", ("203.0.113.7, 10.1.2.3",), "203.0.113.7"),
        ("127.0.0.1", ("203.0.113.7", "10.1.2.3"), "203.0.113.7"),
        ("127.0.0.1", ("10.9.9.9, 10.1.2.3",), "10.9.9.9"),
        ("127.0.0.1", (), "127.0.0.1"),
    ],
)
def test_a_trusted_proxy_is_believed(peer: str, forwarded: tuple[str, ...], seen: str) -> None:
    assert address_of((peer, 4000), *forwarded) == seen


@pytest.mark.parametrize(
    ("peer", "forwarded", "seen"),
    [
        ("203.0.113.9", ("127.0.0.1",), "203.0.113.9"),
        ("127.0.0.1", ("1.1.1.1, 203.0.113.7",), "203.0.113.7"),
        ("127.0.0.1", ("1.1.1.1", "203.0.113.7"), "203.0.113.7"),
        ("127.0.0.1", ("1.1.1.1, <script>, 10.1.2.3",), "10.1.2.3"),
        ("127.0.0.1", ("unknown",), "127.0.0.1"),
        ("127.0.0.1", ("fe80::7%<script>",), "fe80::7"),
        ("127.0.0.1", ("",), "127.0.0.1"),
        ("127.0.0.1", (", ".join(["10.0.0.1"] * 4000),), "10.0.0.1"),
        ("not an address", ("1.1.1.1",), "not an address"),
    ],
)
def test_a_client_that_pretends_is_not(peer: str, forwarded: tuple[str, ...], seen: str) -> None:
    assert address_of((peer, 4000), *forwarded) == seen


def test_no_proxy_is_trusted_unless_the_operator_says_so() -> None:
    assert address_of(("127.0.0.1", 4000), "203.0.113.7", trusted=()) == "127.0.0.1"


def test_a_client_on_a_local_socket_has_no_address_and_gets_none() -> None:
    assert address_of(None, "203.0.113.7") is None


def test_of_a_long_way_only_the_end_is_read() -> None:
    hops = ["203.0.113.7", *["10.0.0.1"] * MAX_HOPS]

    assert address_of(("127.0.0.1", 4000), ", ".join(hops)) == "10.0.0.1"


@pytest.mark.parametrize(
    ("kind", "peer", "said", "scheme"),
    [
        ("http", "127.0.0.1", ("https",), "https"),
        ("websocket", "127.0.0.1", ("https",), "wss"),
        ("http", "127.0.0.1", ("http, HTTPS",), "https"),
        ("http", "127.0.0.1", ("https", "http"), "http"),
        ("http", "127.0.0.1", ("ftp",), "http"),
        ("http", "127.0.0.1", ("https\r\nx",), "http"),
        ("http", "127.0.0.1", (), "http"),
        ("websocket", "127.0.0.1", ("",), "ws"),
        ("http", "203.0.113.9", ("https",), "http"),
    ],
)
def test_a_trusted_proxy_says_whether_the_client_spoke_tls(
    kind: str, peer: str, said: tuple[str, ...], scheme: str
) -> None:
    scope: Any = {"type": kind, "scheme": "http" if kind == "http" else "ws", "client": (peer, 1)}
    scope["headers"] = [(b"x-forwarded-proto", value.encode()) for value in said]

    async def app(_scope: Any, _receive: Any, _send: Any) -> None:
        await anyio.lowlevel.checkpoint()

    through: Any = trust_proxies(app, TRUSTED)
    anyio.run(through, scope, None, None)

    assert scope["scheme"] == scheme
