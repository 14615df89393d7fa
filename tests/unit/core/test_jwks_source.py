"""Published key sets: rotated, refreshed, used while the issuer is down, and never fetched too often."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

import anyio
import pytest

from unit.core.issuer import Issuer, issuing
from unit.core.minting import AUDIENCE, ISSUER, ec_key, key_set, mint, public_jwk, rsa_key
from warren.core.identity.jwks_source import KeySource, check_url, load_file, load_url
from warren.core.identity.token_rules import TokenRefused, TokenRules
from warren.core.identity.tokens import Tokens
from warren.domain.errors import Overloaded

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator
    from pathlib import Path

RULES = TokenRules(issuers=frozenset({ISSUER}), audiences=frozenset({AUDIENCE}))
ONE = key_set(public_jwk(rsa_key(), kid="one"))
TWO = key_set(public_jwk(ec_key(), kid="two"))


@pytest.fixture
def issuer() -> Iterator[Issuer]:
    with issuing(ONE) as issuer:
        yield issuer


@contextlib.asynccontextmanager
async def running(source: KeySource) -> AsyncIterator[KeySource]:
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(source.run)
        with anyio.fail_after(60):
            yield source
        tasks.cancel_scope.cancel()


async def until(look: Callable[[], object]) -> None:
    while not look():  # noqa: ASYNC110 - what is waited for happens on another thread, or in the source
        await anyio.sleep(0.005)


def test_a_new_key_is_fetched_when_the_first_token_names_it(issuer: Issuer) -> None:
    async def check() -> None:
        async with running(KeySource(load_url(issuer.url), refresh_s=1000, cooldown_s=0)) as source:
            tokens = Tokens(RULES, source=source)
            await until(lambda: source.is_ready)
            assert (await tokens.authenticate(mint(rsa_key(), "RS256", {"kid": "one"}))).subject == "jwt:ann"
            issuer.body = TWO
            assert (await tokens.authenticate(mint(ec_key(), "ES256", {"kid": "two"}))).subject == "jwt:ann"
        assert issuer.asked == 2

    anyio.run(check)


def test_a_key_that_was_taken_back_opens_nothing_also_for_tokens_that_were_remembered(issuer: Issuer) -> None:
    async def check() -> None:
        async with running(KeySource(load_url(issuer.url), refresh_s=0.05, cooldown_s=0.01)) as source:
            tokens, token = Tokens(RULES, source=source), mint(rsa_key(), "RS256", {"kid": "one"})
            await until(lambda: source.is_ready)
            await tokens.authenticate(token)
            issuer.body = TWO
            await until(lambda: source.generation == 2)
            with pytest.raises(TokenRefused) as caught:
                await tokens.authenticate(token)
            assert caught.value.reason == "jwt_unknown_key"

    anyio.run(check)


def test_unknown_keys_make_us_fetch_no_more_often_than_we_want(issuer: Issuer) -> None:
    async def check() -> None:
        async with running(KeySource(load_url(issuer.url), refresh_s=1000, cooldown_s=60)) as source:
            tokens = Tokens(RULES, source=source)
            await until(lambda: source.is_ready)
            for number in range(50):
                with pytest.raises(TokenRefused):
                    await tokens.authenticate(mint(rsa_key("x"), "RS256", {"kid": f"made up {number}"}))
        assert issuer.asked == 1

    anyio.run(check)


def test_many_who_wait_for_a_new_key_wait_for_one_fetch(issuer: Issuer) -> None:
    async def check() -> None:
        async with running(KeySource(load_url(issuer.url), refresh_s=1000, cooldown_s=0)) as source:
            tokens = Tokens(RULES, source=source)
            await until(lambda: source.is_ready)
            issuer.body = TWO
            async with anyio.create_task_group() as tasks:
                for number in range(50):
                    tasks.start_soon(tokens.authenticate, mint(ec_key(), "ES256", {"kid": "two"}, sub=f"u{number}"))
        assert issuer.asked == 2

    anyio.run(check)


@pytest.mark.parametrize(
    ("status", "body", "headers"),
    [
        (500, ONE, {}),
        (404, ONE, {}),
        (302, ONE, {"Location": "https://elsewhere.example/keys"}),
        (200, b"<html>", {}),
        (200, b'{"keys": []}', {}),
        (200, b" " * (1 << 20), {}),
    ],
)
def test_while_an_issuer_fails_the_last_keys_are_used(
    issuer: Issuer, status: int, body: bytes, headers: dict[str, str]
) -> None:
    async def check() -> None:
        async with running(KeySource(load_url(issuer.url), refresh_s=0.02, cooldown_s=0.01)) as source:
            tokens = Tokens(RULES, source=source)
            await until(lambda: source.is_ready)
            issuer.status, issuer.body, issuer.headers = status, body, headers
            asked = issuer.asked
            await until(lambda: issuer.asked > asked + 2)
            assert await tokens.authenticate(mint(rsa_key(), "RS256", {"kid": "one"}))
            issuer.status, issuer.body, issuer.headers = 200, TWO, {}
            await until(lambda: source.generation == 2)
            assert await tokens.authenticate(mint(ec_key(), "ES256", {"kid": "two"}))

    anyio.run(check)


def test_keys_that_are_too_old_are_used_no_longer(issuer: Issuer) -> None:
    async def check() -> None:
        source = KeySource(load_url(issuer.url), refresh_s=0.02, cooldown_s=0.01, stale_s=0)
        async with running(source):
            tokens = Tokens(RULES, source=source)
            await until(lambda: source.is_ready)
            issuer.status = 500
            asked = issuer.asked
            # The first of these may have been answered with the keys, a moment before; and arrive a moment after.
            await until(lambda: issuer.asked > asked + 1 and not source.is_ready)
            with pytest.raises(Overloaded, match="cannot be had now"):
                await tokens.authenticate(mint(rsa_key(), "RS256", {"kid": "one"}))

    anyio.run(check)


def test_an_issuer_that_does_not_answer_delays_no_known_key(issuer: Issuer) -> None:
    minted = [mint(rsa_key(), "RS256", {"kid": "one"}, sub=f"u{number}") for number in range(20)]
    fetch = load_url(issuer.url)
    ended = 0

    async def load() -> bytes:
        nonlocal ended
        try:
            return await fetch()
        finally:
            ended += 1

    async def check() -> None:
        async with running(KeySource(load, refresh_s=0.02, cooldown_s=0.01)) as source:
            tokens = Tokens(RULES, source=source)
            await until(lambda: source.is_ready)
            issuer.may_answer.clear()
            asked = issuer.asked
            await until(lambda: issuer.asked > asked)
            before = ended
            for token in minted:
                await tokens.authenticate(token)
            assert ended == before, "a caller waited for the fetch that is under way"
            issuer.may_answer.set()

    anyio.run(check)


def test_before_the_first_keys_are_there_a_token_is_not_refused_but_told_to_come_back(issuer: Issuer) -> None:
    issuer.status = 503

    async def check() -> None:
        async with running(KeySource(load_url(issuer.url), refresh_s=1000, cooldown_s=1000)) as source:
            with pytest.raises(Overloaded) as caught:
                await Tokens(RULES, source=source).authenticate(mint(rsa_key(), "RS256", {"kid": "one"}))
            assert caught.value.retry_after_s

    anyio.run(check)


def test_a_file_is_read_again_when_it_changes_and_the_last_keys_used_when_it_is_broken(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    path.write_bytes(ONE)
    reads = 0

    async def load() -> bytes:
        nonlocal reads
        reads += 1
        return await load_file(str(path))()

    async def until_read_again() -> None:
        wanted = reads + 2
        await until(lambda: reads >= wanted)

    async def check() -> None:
        async with running(KeySource(load, refresh_s=0.02, cooldown_s=0.01)) as source:
            tokens = Tokens(RULES, source=source)
            await until(lambda: source.is_ready)
            path.write_bytes(ONE[:50])
            await until_read_again()
            assert await tokens.authenticate(mint(rsa_key(), "RS256", {"kid": "one"}))
            path.unlink()
            await until_read_again()
            assert await tokens.authenticate(mint(rsa_key(), "RS256", {"kid": "one"}))
            path.write_bytes(TWO)
            await until(lambda: source.generation == 2)

    anyio.run(check)


def test_a_pipe_in_the_place_of_a_file_does_not_block(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "keys.json")

    async def check() -> None:
        with anyio.fail_after(10):
            assert await load_file(str(tmp_path / "keys.json"))() == b""

    anyio.run(check)


@pytest.mark.parametrize(
    "url",
    [
        "http://issuer.example/keys",
        "ftp://issuer.example/keys",
        "file:///etc/passwd",
        "https://",
        "https:///keys",
        "https://user:pw@issuer.example/keys",
        "https://issuer.example:port/keys",
        "https://[::1/keys",
        "http://localhost.evil.example/keys",
        "http://127.0.0.1.nip.example/keys",
    ],
)
def test_an_address_that_could_be_tampered_with_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match=r"\w+ \w+ \w+"):
        check_url(url)


@pytest.mark.parametrize("url", ["https://issuer.example/keys", "http://127.0.0.1:8080/k", "http://[::1]/k"])
def test_https_and_this_machine_are_fine(url: str) -> None:
    assert check_url(url) == url
