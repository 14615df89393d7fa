"""What passes between a browser and a server inside, whatever either says."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from warren.gateway.ports.headers import (
    COOKIE_PREFIX,
    POLICY,
    Mount,
    cookie_out,
    cookies_in,
    headers_in,
    headers_out,
    location_out,
)

MOUNT = Mount("/s/token", 5000, is_link=True)
HOST = Mount("", 5000, is_link=True, has_host=True)
BYTES = st.binary(max_size=60)
ATTRIBUTE = st.sampled_from([b"Path=/", b"path=/x", b"PATH = //y", b"Domain=a.b", b"Secure", b"Path=", b"HttpOnly"])


@given(st.from_regex(rb"[A-Za-z_-]{1,20}", fullmatch=True), BYTES, st.lists(ATTRIBUTE | BYTES, max_size=6))
def test_a_cookie_has_one_path_of_its_own_and_no_domain(name: bytes, content: bytes, attributes: list[bytes]) -> None:
    out = cookie_out(b"; ".join([name + b"=" + content, *attributes]), MOUNT)

    assert out is not None
    pair, *kept = out.split(b"; ")
    assert pair.startswith(COOKIE_PREFIX + name + b"=")
    assert [each for each in kept if each.lower().startswith(b"path")] == kept[:1]
    assert kept[0].startswith(b"Path=/s/token/")
    assert not any(each.lower().startswith(b"domain") for each in kept)


@given(st.from_regex(rb"[A-Za-z_-]{1,20}", fullmatch=True), st.from_regex(rb"[!#-+\--:<-~]{0,20}", fullmatch=True))
def test_a_cookie_comes_back_as_it_was_set(name: bytes, content: bytes) -> None:
    out = cookie_out(name + b"=" + content, MOUNT)
    assert out is not None

    sent = b"ours=secret; " + out.partition(b";")[0]
    assert cookies_in(sent, MOUNT) == name + b"=" + content


@given(st.lists(st.tuples(st.sampled_from([b"host", b"cookie", b"x-api-key", b"authorization", b"connection"]), BYTES)))
def test_one_host_and_no_credential_go_in(headers: list[tuple[bytes, bytes]]) -> None:
    names = [name for name, _ in headers_in(headers, Mount("/p", 5000), "http", "req_1")]

    assert names.count(b"host") == 1
    assert not {b"authorization", b"x-api-key"} & set(names)


@given(st.lists(st.tuples(st.sampled_from([b"connection", b"content-security-policy", b"referrer-policy"]), BYTES)))
def test_our_policy_is_on_every_answer_but_at_a_host_of_its_own(headers: list[tuple[bytes, bytes]]) -> None:
    out = headers_out(headers, MOUNT)

    assert (b"content-security-policy", POLICY) in out
    assert [value for name, value in out if name == b"referrer-policy"] == [b"no-referrer"]
    assert (b"content-security-policy", POLICY) not in headers_out(headers, HOST)


@given(st.binary(max_size=100))
def test_no_location_crashes_us(value: bytes) -> None:
    out = location_out(value, MOUNT)

    assert out == value or out.startswith(b"/s/token/")
    assert location_out(b"http://localhost:5000" + b"/x", HOST) == b"/x"
