"""The service against those who make tokens of their own, or bend genuine ones: a real process, a real issuer."""

from __future__ import annotations

import hashlib
import hmac
import json
import time
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from e2e.serving import DEADLINE_S, NotStarted, RunningService, create, run_code, wait_until
from security.attacked import Attacked, attacked
from unit.core.issuer import Issuer, issuing
from unit.core.minting import (
    AUDIENCE,
    ISSUER,
    claims,
    ec_key,
    encode,
    key_set,
    mint,
    mint_by_hand,
    public_jwk,
    public_pem,
    rsa_key,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

MINE = rsa_key("attacker")
"""A key of the attacker, which is not trusted."""
CLIENT = httpx.Client(timeout=DEADLINE_S, trust_env=False)
KEYS = key_set(public_jwk(rsa_key(), kid="one"), public_jwk(ec_key(), kid="two"))


@pytest.fixture(autouse=True)
def unharmed() -> None:
    """No sandbox is attacked here: the service is."""


@pytest.fixture(scope="module", autouse=True)
def closed() -> Iterator[None]:
    yield
    CLIENT.close()


@pytest.fixture(scope="module")
def issuer() -> Iterator[Issuer]:
    with issuing(KEYS) as issuer:
        yield issuer


@pytest.fixture(scope="module")
def trap() -> Iterator[Issuer]:
    """The attacker's own key set, which must never be requested."""
    with issuing(key_set(public_jwk(MINE, kid="mine"))) as trap:
        yield trap


@pytest.fixture(scope="module")
def target(
    tmp_path_factory: pytest.TempPathFactory, images_dir: str, python_image: object, issuer: Issuer
) -> Iterator[Attacked]:
    assert python_image is not None
    settings = {
        "jwt_jwks": issuer.url,
        "jwt_issuer": ISSUER,
        "jwt_audience": AUDIENCE,
        "jwt_leeway_s": 0,
        "jwt_jwks_cooldown_s": 0.5,
        "jwt_jwks_refresh_s": 1,
    }
    with attacked(tmp_path_factory.mktemp("tokens"), images_dir, **settings) as target:
        wait_until(lambda: ask(target, genuine()).status_code == 200, "the keys to be fetched")
        yield target


def genuine(**changed: Any) -> str:
    return mint(rsa_key(), "RS256", {"kid": "one"}, **changed)


def ask(target: Attacked, token: str | bytes) -> httpx.Response:
    headers = {b"Authorization": b"Bearer " + (token if isinstance(token, bytes) else token.encode())}
    return CLIENT.get(f"{target.url}/api/v1/sandboxes", headers=headers)


def check_refused(target: Attacked, token: str | bytes) -> None:
    answer = ask(target, token)

    assert (answer.status_code, answer.json()["code"]) == (401, "unauthenticated"), answer.text
    assert answer.headers["www-authenticate"] == 'Bearer realm="warren"'


def confused(key: Any, guess: bytes, algorithm: str = "HS256", **header: Any) -> str:
    """Sign with the public part of a key, as if it were a secret."""
    assert key
    text = f"{encode({'alg': algorithm, 'typ': 'JWT', **header})}.{encode(claims(scope='warren:admin'))}"
    digest = getattr(hashlib, algorithm.replace("HS", "sha"))
    return f"{text}.{encode(hmac.new(guess, text.encode(), digest).digest())}"


def test_a_genuine_token_opens_what_it_is_for(target: Attacked) -> None:
    headers = {"Authorization": f"Bearer {genuine()}"}
    with httpx.Client(base_url=f"{target.url}/api/v1", headers=headers, timeout=DEADLINE_S, trust_env=False) as client:
        sandbox_id = create(client)
        assert run_code(client, sandbox_id, "print(6 * 7)")["stdout"] == "42\n"
        assert client.delete(f"/sandboxes/{sandbox_id}").status_code == 204


def test_neither_the_log_nor_the_record_has_a_token_but_the_record_says_why(target: Attacked) -> None:
    forged = mint(MINE, "RS256", {"kid": "one"})
    for token in (forged, genuine(exp=1), confused(rsa_key(), b"", kid="one")):
        check_refused(target, token)
    with target.client("adam") as adam:
        rows = adam.get("/audit", params={"action": "auth.refuse", "limit": 1000}).json()["items"]
    log = target.service.log_path.read_text()

    assert {"jwt_signature", "jwt_expired", "jwt_algorithm"} <= {row["details"]["reason"] for row in rows}
    for part in forged.split("."):
        assert part not in log
        assert part not in json.dumps(rows)


@pytest.mark.parametrize("name", ["none", "None", "NONE", "nOnE", "", "null"])
def test_tokens_without_a_signature(target: Attacked, name: str) -> None:
    for kid in ({}, {"kid": "one"}):
        unsigned = f"{encode({'alg': name, 'typ': 'JWT', **kid})}.{encode(claims(scope='warren:admin'))}."
        for token in (unsigned, f"{unsigned}AA", unsigned + genuine().rpartition(".")[2]):
            check_refused(target, token)


@pytest.mark.parametrize("algorithm", ["HS256", "HS384", "HS512"])
@pytest.mark.parametrize("kid", ["one", "two", "other"])
def test_public_keys_taken_for_secrets(target: Attacked, algorithm: str, kid: str) -> None:
    key = ec_key() if kid == "two" else rsa_key()
    pem, jwk = public_pem(key), public_jwk(key, kid=kid)
    for guess in (pem, pem.strip(), json.dumps(jwk).encode(), str(jwk.get("n", "")).encode(), KEYS, b"", b"\0"):
        check_refused(target, confused(key, guess, algorithm, kid=kid))


def test_keys_and_algorithms_that_do_not_belong_together(target: Attacked) -> None:
    check_refused(target, mint(ec_key(), "ES256", {"kid": "one"}))
    check_refused(target, mint(rsa_key(), "RS256", {"kid": "two"}))
    check_refused(target, mint(MINE, "RS256", {"kid": "one"}))
    header = encode({"alg": "ES256", "kid": "one"})
    check_refused(target, f"{header}.{'.'.join(genuine().split('.')[1:])}")
    check_refused(target, f"{encode({'alg': 'ES256', 'kid': 'two'})}.{encode(claims())}.{encode(bytes(64))}")


def test_keys_that_the_attacker_brings_along(target: Attacked, trap: Issuer) -> None:
    for header in (
        {"jwk": public_jwk(MINE)},
        {"jku": trap.url, "kid": "mine"},
        {"x5u": trap.url, "kid": "one"},
        {"x5c": [encode(public_pem(MINE))], "kid": "one"},
        {"kid": trap.url},
        {"kid": f"{trap.url}#one", "iss": trap.url},
    ):
        check_refused(target, mint(MINE, "RS256", header, iss=ISSUER, jwks_uri=trap.url))
    assert trap.asked == 0


@pytest.mark.parametrize(
    "kid",
    [
        "../../../../dev/null",
        "/dev/null",
        "one\0",
        "one' OR '1'='1",
        "$(id)",
        "|id",
        "one,two",
        "é",
        "k" * 5000,
        "",
        "*",
    ],
)
def test_names_of_keys_that_mean_something_elsewhere(target: Attacked, kid: str) -> None:
    check_refused(target, mint_by_hand({"alg": "HS256", "kid": kid}, claims(), b""))
    check_refused(target, mint_by_hand({"alg": "RS256", "kid": kid}, claims(), MINE, "RS256"))


@pytest.mark.parametrize("kid", [None, 1, ["one"], {"one": 1}, True])
def test_names_of_keys_that_are_no_names(target: Attacked, kid: object) -> None:
    token = mint_by_hand({"alg": "RS256", "kid": kid}, claims(), MINE, "RS256")
    check_refused(target, token)


def test_unknown_critical_headers_and_types_are_refused(target: Attacked) -> None:
    asked: list[dict[str, Any]] = [
        {"crit": ["b64"], "b64": False},
        {"crit": ["exp"], "exp": 0},
        {"crit": []},
        {"crit": "x"},
    ]
    for more in asked:
        check_refused(target, mint_by_hand({"alg": "RS256", "kid": "one", **more}, claims(), rsa_key(), "RS256"))
    for kind in ("logout+jwt", "secevent+jwt", 7):
        check_refused(target, mint_by_hand({"alg": "RS256", "kid": "one", "typ": kind}, claims(), rsa_key(), "RS256"))


def test_names_that_are_there_twice(target: Attacked) -> None:
    twice = json.dumps(claims()).replace('"sub": "ann"', '"sub": "ann", "sub": "root"').encode()
    header = b'{"alg": "RS256", "kid": "one", "kid": "two"}'

    check_refused(target, mint_by_hand({"alg": "RS256", "kid": "one"}, twice, rsa_key(), "RS256"))
    check_refused(target, mint_by_hand(header, claims(), rsa_key(), "RS256"))


@pytest.mark.parametrize(
    "changed",
    [
        {"sub": None},
        {"sub": 7},
        {"sub": ["ann"]},
        {"sub": {"name": "ann"}},
        {"sub": ""},
        {"sub": "a\r\nX-Evil: 1"},
        {"sub": "x" * 300},
        {"tenant": None},
        {"tenant": ["north"]},
        {"tenant": "north/../south"},
        {"tenant": "north\0"},
        {"iss": None},
        {"iss": f"{ISSUER}/"},
        {"aud": "other"},
        {"aud": None},
        {"aud": [AUDIENCE.upper()]},
        {"exp": None},
        {"exp": int(time.time()) - 1},
        {"exp": "9999999999"},
        {"exp": 10**20},
        {"nbf": int(time.time()) + 3600},
        {"iat": int(time.time()) + 3600},
        {"iat": int(time.time()) - 90_000},
        {"iat": None, "exp": int(time.time()) + 10**8},
    ],
)
def test_genuine_tokens_that_say_what_they_must_not(target: Attacked, changed: dict[str, Any]) -> None:
    check_refused(target, genuine(**changed))


@pytest.mark.parametrize(
    "token",
    [
        b"a.b.c",
        b"..",
        b"\xff.\xff.\xff",
        b"e30.e30.e30",
        b"e30.e30.",
        b"eyJhbGciOiJIUzI1NiJ9." + b"A" * 10_000 + b".AAAA",
        b"A" * 20_000 + b".AAAA.AAAA",
        encode(b"[" * 3000).encode() + b".AAAA.AAAA",
        encode(b'{"alg":' * 900).encode() + b".AAAA.AAAA",
        b"a.b.c.d.e",
    ],
)
def test_what_is_hardly_a_token(target: Attacked, token: bytes) -> None:
    assert ask(target, token).status_code == 401


def test_changing_anything_of_a_genuine_token(target: Attacked) -> None:
    token = genuine()
    for place in range(0, len(token), 23):
        other = "A" if token[place] != "A" else "B"
        check_refused(target, token[:place] + other + token[place + 1 :])
    head, body, signature = token.split(".")
    admin = encode(claims(scope="warren:admin"))
    for forged in (f"{head}.{admin}.{signature}", f"{head}.{body}.{signature[:-4]}", f"{head}.{body}.{signature}AAAA"):
        check_refused(target, forged)


def test_a_token_is_good_for_its_own_tenant_and_its_own_name_only(target: Attacked) -> None:
    """The bearer of a token who has the name of a key's subject, in its tenant, finds none of its things."""
    with target.client("ann") as ann:
        sandbox_id = create(ann)
        headers = {"Authorization": f"Bearer {genuine(tenant='north', sub='ann')}"}
        with httpx.Client(
            base_url=f"{target.url}/api/v1", headers=headers, timeout=DEADLINE_S, trust_env=False
        ) as twin:
            assert twin.get(f"/sandboxes/{sandbox_id}").status_code == 404
            assert twin.get("/sandboxes").json()["total"] == 0
            assert twin.get("/audit").json()["items"] == []
            assert twin.get("/sandboxes", params={"everybody": True}).status_code == 403
        assert ann.delete(f"/sandboxes/{sandbox_id}").status_code == 204


def test_unknown_keys_cannot_make_the_service_fetch_again_and_again(target: Attacked, issuer: Issuer) -> None:
    asked, since = issuer.asked, time.monotonic()
    for number in range(60):
        check_refused(target, mint(MINE, "RS256", {"kid": f"made up {number}"}))
    lasted = time.monotonic() - since

    assert issuer.asked - asked <= lasted / 0.5 + 2


def test_a_key_that_the_issuer_takes_back_opens_nothing_any_more(target: Attacked, issuer: Issuer) -> None:
    token = mint(ec_key(), "ES256", {"kid": "two"})
    assert ask(target, token).status_code == 200
    issuer.body = key_set(public_jwk(rsa_key(), kid="one"))
    try:
        wait_until(lambda: ask(target, token).status_code == 401, "the key to be gone")
        assert ask(target, genuine()).status_code == 200
    finally:
        issuer.body = KEYS
    wait_until(lambda: ask(target, token).status_code == 200, "the key to be back")


def test_an_issuer_that_is_down_or_lies_locks_out_no_known_key(target: Attacked, issuer: Issuer) -> None:
    for status, body in ((500, KEYS), (200, b"<html>"), (302, KEYS), (200, b'{"keys": []}'), (200, b" " * (1 << 20))):
        issuer.status, issuer.body = status, body
        wanted = issuer.asked + 1
        while issuer.asked < wanted:
            check_refused(target, mint(MINE, "RS256", {"kid": "made up"}))
        assert ask(target, genuine(sub=f"{status}")).status_code == 200
    issuer.status, issuer.body = 200, KEYS


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"jwt_secret": "hunter2"}, "jwt.secret cannot be used: the secret has 7 bytes and needs 32"),
        ({"jwt_secret": "hunter2" * 6, "jwt_algorithms": "HS512"}, "needs 64"),
        ({"jwt_secret": "hunter2" * 6, "jwt_algorithms": "none"}, "jwt.algorithms cannot have 'none'"),
        ({"jwt_secret": public_pem(rsa_key()).decode()}, "name its file as jwt.public_key_file"),
        ({"jwt_jwks": "http://issuer.example/keys", "jwt_issuer": "i", "jwt_audience": "a"}, "https://"),
        ({"jwt_jwks": "https://issuer.example/keys"}, "jwt.issuer must be set"),
    ],
)
def test_a_service_that_could_be_fooled_does_not_start(
    tmp_path: Path, images_dir: str, settings: dict[str, str], said: str
) -> None:
    service = RunningService(tmp_path / "data", images_dir, "bare", **settings)
    with pytest.raises(NotStarted) as caught:
        service.start()
    service.clear()

    assert said in caught.value.said
    assert "hunter2" not in caught.value.said
    assert "Traceback" not in caught.value.said
