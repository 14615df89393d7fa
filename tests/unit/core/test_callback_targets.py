"""Addresses that tool callbacks may call."""

from __future__ import annotations

import anyio
import pytest

from api.callback_server import TOKEN, calling_back
from warren.core.callbacks.targets import Reached, Targets, Unreached
from warren.domain.errors import InvalidRequest

LOCAL = "http://127.0.0.1:9/"


def check(targets: Targets, url: str, peer: str = "") -> None:
    anyio.run(targets.check, url, peer)


@pytest.mark.parametrize(
    "url",
    ["https://8.8.8.8/x", "http://[2606:4700:4700::1111]:8080/", "https://no-such-host.invalid/"],
)
def test_public_addresses_and_names_that_may_come_to_be_are_taken(url: str) -> None:
    check(Targets(), url)


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1",
        "127.1",
        "2130706433",
        "localhost",
        "[::1]",
        "0.0.0.0",
        "[::]",
        "10.0.0.1",
        "172.16.0.1",
        "192.168.1.1",
        "100.64.0.1",
        "169.254.169.254",
        "224.0.0.1",
        "[fe80::1]",
        "[fd00::1]",
        "[::ffff:10.0.0.1]",
        "[64:ff9b::a00:1]",
        "[2002:a00:1::]",
        "[::7f00:1]",
        "[fec0::1]",
    ],
)
def test_addresses_that_are_not_public_are_refused(host: str) -> None:
    with pytest.raises(InvalidRequest, match="callback_hosts"):
        check(Targets(), f"http://{host}/")


@pytest.mark.parametrize(
    ("hosts", "url"),
    [
        (["127.0.0.1"], LOCAL),
        (["127.0.0.0/8"], LOCAL),
        (["localhost"], "http://LOCALHOST.:9/"),
        (["localhost:9"], "http://localhost:9/"),
        (["gateway.internal"], "http://gateway.internal/"),
        (["::1"], "http://[::1]/"),
    ],
)
def test_what_the_operator_lists_is_taken(hosts: list[str], url: str) -> None:
    check(Targets(hosts), url)


def test_a_name_that_is_listed_with_a_port_is_not_taken_on_another() -> None:
    with pytest.raises(InvalidRequest):
        check(Targets(["localhost:9"]), "http://localhost:10/")


def test_no_answer_tells_what_a_private_name_resolves_to() -> None:
    with pytest.raises(InvalidRequest, match="leads to localhost") as refused:
        check(Targets(), "http://localhost/")
    assert "127.0.0.1" not in str(refused.value)


def test_who_registers_may_be_called_unless_it_is_this_machine() -> None:
    check(Targets(), "http://10.1.2.3:8000/", "10.1.2.3")
    for url, peer in (
        ("http://10.1.2.4/", "10.1.2.3"),
        (LOCAL, "127.0.0.1"),
        ("http://169.254.169.254/", "169.254.169.254"),
        ("http://10.1.2.3/", ""),
    ):
        with pytest.raises(InvalidRequest):
            check(Targets(), url, peer)


@pytest.mark.parametrize(
    "url",
    [
        "ftp://example.com/",
        "file:///etc/passwd",
        "//example.com/",
        "http://",
        "http://a\nb/",
        "http://a b/",
        "http://[::1/",
        "http://example.com:99999/",
        "http://me:it@example.com/",
        "http://example.com/" + "x" * 3000,
        "http://ex\u00e4mple.com/",
    ],
)
def test_what_is_no_address_that_we_would_call_is_refused(url: str) -> None:
    with pytest.raises(InvalidRequest):
        check(Targets(["127.0.0.0/8"]), url)


def test_an_address_is_checked_again_when_it_is_called() -> None:
    """What was registered when it was allowed, or by a name that led elsewhere, is not called now."""
    with calling_back() as server, pytest.raises(Unreached, match="not public") as caught:
        anyio.run(post, Targets(), server.url)

    assert server.asked == []
    assert "secret" not in str(caught.value)


def test_a_listed_server_gets_the_token_and_its_own_name() -> None:
    with calling_back() as server:
        reached = anyio.run(post, Targets(["127.0.0.0/8"]), server.url.replace("127.0.0.1", "localhost"))

    assert reached == Reached(200, b'{"content": {"echo": {}}}')
    assert server.headers[0]["authorization"] == f"Bearer {TOKEN}"
    assert server.headers[0]["host"] == f"localhost:{server.port}"


async def post(targets: Targets, url: str) -> Reached:
    content = b'{"call_id": "", "name": "look_up", "input": {}}'
    return await targets.post(url, "", token=TOKEN, content=content, timeout_s=10)
