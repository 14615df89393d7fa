from __future__ import annotations

import subprocess
import sys

import pytest

import warren
from warren.domain.errors import ConfigError
from warren.sdk.address import Address, encode, encode_path


@pytest.mark.parametrize(
    ("given", "url", "socket"),
    [
        ("http://127.0.0.1:8000", "http://127.0.0.1:8000", None),
        ("https://warren.example/", "https://warren.example", None),
        ("https://proxy.example/warren/api/v1/", "https://proxy.example/warren", None),
        ("http://[::1]:8000", "http://[::1]:8000", None),
        ("unix:/run/warren.sock", "http://localhost", "/run/warren.sock"),
        ("unix:///run/warren.sock", "http://localhost", "/run/warren.sock"),
    ],
)
def test_an_address_is_read(given: str, url: str, socket: str | None) -> None:
    assert Address.parse(given) == Address(url, socket)


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (None, "set WARREN_URL or give url="),
        ("", "set WARREN_URL or give url="),
        ("127.0.0.1:8000", "http://127.0.0.1:8000"),
        ("ftp://x", "is no address"),
        ("http://x:port", "is no address"),
        ("http://", "is no address"),
        ("http://ann:secret@x", "give the key as api_key="),
        ("http://x/?a=b", "leave out what follows"),
        ("unix:relative.sock", "whole path"),
    ],
)
def test_what_is_no_address_says_what_to_do(given: str | None, why: str) -> None:
    with pytest.raises(ConfigError, match=why) as caught:
        Address.parse(given)
    assert "secret" not in str(caught.value)


def test_an_address_shows_itself_as_it_was_given() -> None:
    assert str(Address.parse("unix:/run/warren.sock")) == "unix:/run/warren.sock"
    assert repr(warren.Client("http://127.0.0.1:8000/", "wrn_secret")) == "Client('http://127.0.0.1:8000')"


def test_websockets_are_at_the_same_address() -> None:
    assert Address.parse("https://x/y").websocket_url == "wss://x/y"
    assert Address.parse("http://x").websocket_url == "ws://x"


def test_paths_are_written_so_that_nothing_on_the_way_changes_them() -> None:
    assert encode("a/b?c#d%") == "a%2Fb%3Fc%23d%25"
    assert [encode(part) for part in (".", "..", "...", "a.b")] == ["%2E", "%2E%2E", "...", "a.b"]
    assert encode_path("a b/../ä/\udcff") == "a%20b/%2E%2E/%C3%A4/%FF"


def test_address_and_key_come_from_the_environment_unless_they_are_given() -> None:
    program = (
        "import warren; one, other = warren.Client(), warren.Client('http://b', 'k2');"
        "print(one.url, one._connection.api_key, other.url, other._connection.api_key)"
    )
    env = {"WARREN_URL": "http://a", "WARREN_API_KEY": "k1"}

    done = subprocess.run([sys.executable, "-c", program], env=env, check=True, capture_output=True, text=True)

    assert done.stdout.split() == ["http://a", "k1", "http://b", "k2"]
