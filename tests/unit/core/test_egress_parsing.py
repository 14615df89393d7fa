"""Parsers of egress: ClientHello, SOCKS, request targets, and secrets that span pieces."""

from __future__ import annotations

import ssl

import h11
import pytest
from hypothesis import given
from hypothesis import strategies as st

from warren.core.egress import socks
from warren.core.egress.connection import EgressUsage
from warren.core.egress.message import BadRequest, read_authority, read_target, request_headers
from warren.core.egress.secret_broker import Broker, Cleaner
from warren.core.egress.tls_hello import NotTls, asks_again, hello_size, may_be_tls, parse_hello
from warren.core.policy.policy import EgressLimits
from warren.domain.egress import Brokered


def say_hello(name: str | None, *, newest: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3) -> bytes:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.maximum_version = newest
    outgoing = ssl.MemoryBIO()
    client = context.wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname=name)
    with pytest.raises(ssl.SSLWantReadError):
        client.do_handshake()
    return outgoing.read()


HELLO = say_hello("some.example.org")


@pytest.mark.parametrize("newest", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_the_name_in_a_real_hello_is_found(newest: ssl.TLSVersion) -> None:
    found = parse_hello(say_hello("Some.Example.ORG", newest=newest))

    assert found is not None
    assert (found.name, found.is_encrypted) == ("some.example.org", False)


def test_a_hello_without_a_name_has_none() -> None:
    found = parse_hello(say_hello(None))

    assert found is not None
    assert found.name is None


def test_a_hello_is_complete_with_its_last_byte_and_not_before() -> None:
    for size in range(len(HELLO)):
        assert parse_hello(HELLO[:size]) is None, size
        assert may_be_tls(HELLO[:size])

    assert parse_hello(HELLO) is not None
    assert hello_size(HELLO + b"more") == len(HELLO)
    assert not asks_again(HELLO)


@given(st.binary(max_size=200), st.integers(0, len(HELLO)), st.integers(0, 20))
def test_any_bytes_are_a_hello_part_of_one_or_none(noise: bytes, at: int, removed: int) -> None:
    for said in (noise, HELLO[:at] + noise + HELLO[at + removed :]):
        try:
            parse_hello(said)
        except NotTls:
            continue


@given(st.binary(max_size=300))
def test_any_bytes_are_socks_part_of_it_or_not(noise: bytes) -> None:
    for start in (b"", b"\x04", b"\x05", b"\x05\x01\x00\x03"):
        try:
            found = socks.parse_request(start + noise)
        except socks.NotSocks:
            continue
        assert found is None or 0 <= found[0].port < 65_536
    socks.parse_greeting(noise)


@pytest.mark.parametrize(
    ("text", "default", "expected"),
    [
        ("example.org", 80, ("example.org", 80)),
        ("Example.ORG.:8080", 80, ("example.org", 8080)),
        ("[::1]:443", None, ("::1", 443)),
        ("[2001:db8::1]", 80, ("2001:db8::1", 80)),
        ("1.2.3.4:1", None, ("1.2.3.4", 1)),
        ("example.org", None, None),
        ("example.org:", None, None),
        ("example.org:0", 80, None),
        ("example.org:65536", 80, None),
        ("example.org:+80", 80, None),
        ("a:b:80", 80, None),
        ("[::1", 80, None),
        ("[::1]x:80", 80, None),
        ("", 80, None),
        ("-:80", 80, None),
    ],
)
def test_hosts_with_ports(text: str, default: int | None, expected: tuple[str, int] | None) -> None:
    if expected is None:
        with pytest.raises(BadRequest):
            read_authority(text, default)
    else:
        assert read_authority(text, default) == expected


@pytest.mark.parametrize(
    ("target", "path"),
    [
        (b"http://example.org", b"/"),
        (b"http://example.org?x=1", b"/?x=1"),
        (b"HTTP://example.org:80/a//b?c=http://d/", b"/a//b?c=http://d/"),
    ],
)
def test_the_address_of_a_request(target: bytes, path: bytes) -> None:
    request = h11.Request(
        method="GET", target=target, headers=[("Host", "example.org"), ("Connection", "a, host"), ("A", "1")]
    )

    found = read_target(request)

    assert (found.host, found.port, found.path) == ("example.org", 80, path)
    assert request_headers(request, found, upgrade=False) == [(b"Host", found.authority)]


def secret(value: str, placeholder: str = "wsec_0") -> Brokered:
    return Brokered(
        sandbox_id="sbx", name="KEY", placeholder=placeholder, hosts=("a.example",), value=value, created_at=0.0
    )


@given(st.text("ab", min_size=1, max_size=4), st.text("abc", max_size=40), st.lists(st.integers(1, 9), max_size=20))
def test_a_value_is_found_however_a_body_is_cut(value: str, body: str, cuts: list[int]) -> None:
    cleaner = Cleaner([(value.encode(), b"*")])
    said, left = b"", body.encode()
    for cut in cuts:
        said += cleaner.feed(left[:cut])
        left = left[cut:]
    said += cleaner.feed(left) + cleaner.end()

    assert value.encode() not in said
    assert said.replace(b"*", value.encode()) == body.encode()


def test_without_secrets_nothing_is_changed() -> None:
    headers = [(b"Accept-Encoding", b"gzip"), (b"X", b"wsec_0")]

    assert Broker(()).fill(headers) is headers
    assert Broker(()).port(80) == 80
    assert Broker((secret("v"),)).fill(headers) == [(b"X", b"v"), (b"Accept-Encoding", b"identity")]
    assert [Broker((secret("v"),)).port(port) for port in (80, 8443)] == [443, 8443]


def test_bytes_and_connections_are_counted_by_the_hour_and_the_minute() -> None:
    usage = EgressUsage(EgressLimits(per_minute=40, bytes_per_hour=1000))

    assert [usage.take_connection() for _ in range(11)] == [True] * 10 + [False]
    assert [usage.take(400) for _ in range(3)] == [True, True, False]
    unlimited = EgressUsage(EgressLimits(per_minute=0, bytes_per_hour=0))
    assert all(unlimited.take_connection() and unlimited.take(1 << 50) for _ in range(100))
