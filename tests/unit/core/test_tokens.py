"""Tokens: which are accepted, the principals they describe, and attempts to get in without one."""

from __future__ import annotations

import dataclasses
import hashlib
import hmac
import json
import time
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from unit.core.minting import (
    AUDIENCE,
    ISSUER,
    SECRET,
    claims,
    ec_key,
    ed_key,
    encode,
    key_set,
    mint,
    mint_by_hand,
    public_jwk,
    public_pem,
    rsa_key,
)
from warren.core.identity.jwks import TokenKey, build_pem_keys, build_secret_key, parse_jwks
from warren.core.identity.token_rules import TokenRefused, TokenRules
from warren.core.identity.tokens import Tokens
from warren.domain.records import Owner, Principal, Scope

if TYPE_CHECKING:
    from collections.abc import Iterable

RULES = TokenRules(issuers=frozenset({ISSUER}), audiences=frozenset({AUDIENCE}), scopes={"ops": Scope.ADMIN})
SHARED = build_secret_key(SECRET.encode())


class Clock:
    """A time that a test moves."""

    def __init__(self) -> None:
        self.now = time.time()

    def __call__(self) -> float:
        return self.now


class Asked(frozenset[str]):
    """The algorithms of a key, which count how often the key is considered."""

    count = 0

    def __contains__(self, algorithm: object) -> bool:
        self.count += 1
        return super().__contains__(algorithm)


def build(keys: Iterable[TokenKey] = (SHARED,), clock: Clock | None = None, **changed: Any) -> Tokens:
    fields = {name: getattr(RULES, name) for name in TokenRules.__slots__}
    return Tokens(TokenRules(**{**fields, **changed}), keys, clock=clock or Clock())


def accept(tokens: Tokens, token: str) -> Principal:
    return anyio.run(tokens.authenticate, token)


def refuse(tokens: Tokens, token: str) -> TokenRefused:
    with pytest.raises(TokenRefused) as caught:
        anyio.run(tokens.authenticate, token)
    return caught.value


@pytest.mark.parametrize("algorithm", ["HS256", "HS384", "HS512"])
def test_a_token_signed_with_the_secret_names_its_bearer(algorithm: str) -> None:
    principal = accept(build(), mint(SECRET, algorithm))

    assert (principal.tenant, principal.subject, principal.scope, principal.key_id) == (
        "acme",
        "jwt:ann",
        Scope.RUN,
        None,
    )


@pytest.mark.parametrize("algorithm", ["RS256", "RS384", "RS512", "PS256", "PS384", "PS512"])
def test_a_token_signed_with_the_private_half_of_an_rsa_key_is_believed(algorithm: str) -> None:
    tokens = build(build_pem_keys(public_pem(rsa_key())))

    assert accept(tokens, mint(rsa_key(), algorithm)).subject == "jwt:ann"
    assert refuse(tokens, mint(rsa_key("another"), algorithm)).reason == "jwt_signature"


@pytest.mark.parametrize(
    ("algorithm", "curve"), [("ES256", "secp256r1"), ("ES384", "secp384r1"), ("ES512", "secp521r1")]
)
def test_a_token_signed_with_the_private_half_of_an_ec_key_is_believed(algorithm: str, curve: str) -> None:
    tokens = build(build_pem_keys(public_pem(ec_key(curve))))

    assert accept(tokens, mint(ec_key(curve), algorithm)).subject == "jwt:ann"


def test_a_token_signed_with_an_ed25519_key_is_believed() -> None:
    assert accept(build(build_pem_keys(public_pem(ed_key()))), mint(ed_key(), "EdDSA")).subject == "jwt:ann"


def test_the_key_set_of_an_issuer_is_as_good_as_its_pem() -> None:
    keys = parse_jwks(key_set(public_jwk(rsa_key(), kid="r"), public_jwk(ec_key(), kid="e"), public_jwk(ed_key())))
    tokens = build(keys)

    assert accept(tokens, mint(rsa_key(), "RS256", {"kid": "r"})).subject == "jwt:ann"
    assert accept(tokens, mint(ec_key(), "ES256", {"kid": "e"})).subject == "jwt:ann"
    assert accept(tokens, mint(ed_key(), "EdDSA", {"kid": "anything"})).subject == "jwt:ann"


def test_none_is_no_algorithm() -> None:
    for name in ("none", "None", "NONE", "nOnE", ""):
        for signature in ("", "AA"):
            token = f"{encode({'alg': name, 'typ': 'JWT'})}.{encode(claims())}.{signature}"
            assert refuse(build(), token).reason in {"jwt_algorithm", "jwt_malformed"}


@pytest.mark.parametrize("key", [rsa_key(), ec_key(), ed_key()], ids=["rsa", "ec", "ed25519"])
@pytest.mark.parametrize("algorithm", ["HS256", "HS384", "HS512"])
def test_a_public_key_is_never_taken_for_a_secret(key: Any, algorithm: str) -> None:
    """The public key is public: an attacker would otherwise sign with it."""
    pem = public_pem(key)
    jwk = public_jwk(key, kid="k")
    hashed = getattr(hashlib, algorithm.replace("HS", "sha"))
    text = f"{encode({'alg': algorithm, 'typ': 'JWT', 'kid': 'k'})}.{encode(claims())}"
    for tokens in (build(build_pem_keys(pem)), build(parse_jwks(key_set(jwk)))):
        for guess in (pem, pem.strip(), json.dumps(jwk).encode(), b""):
            token = f"{text}.{encode(hmac.new(guess, text.encode(), hashed).digest())}"
            assert refuse(tokens, token).reason == "jwt_algorithm"


def test_a_key_is_used_only_with_the_algorithms_of_its_kind() -> None:
    rsa_only = build(build_pem_keys(public_pem(rsa_key())))
    ec_only = build(build_pem_keys(public_pem(ec_key())))

    assert refuse(rsa_only, mint(ec_key(), "ES256")).reason == "jwt_algorithm"
    assert refuse(ec_only, mint(rsa_key(), "RS256")).reason == "jwt_algorithm"
    assert refuse(ec_only, mint(ec_key("secp384r1"), "ES384")).reason == "jwt_algorithm"
    assert refuse(build(), mint(rsa_key(), "RS256")).reason == "jwt_algorithm"


def test_the_operator_and_the_issuer_can_allow_fewer_algorithms() -> None:
    chosen = build(build_pem_keys(public_pem(rsa_key()), ("RS512", "ES256")))
    bound = build(parse_jwks(key_set(public_jwk(rsa_key(), alg="PS256"))))

    assert accept(chosen, mint(rsa_key(), "RS512"))
    assert refuse(chosen, mint(rsa_key(), "RS256")).reason == "jwt_algorithm"
    assert accept(bound, mint(rsa_key(), "PS256"))
    assert refuse(bound, mint(rsa_key(), "RS256")).reason == "jwt_algorithm"


def test_a_header_says_nothing_of_where_keys_are() -> None:
    """With a key of their own in the header, or its address, attackers would be their own issuers."""
    tokens = build(build_pem_keys(public_pem(rsa_key())))
    mine = rsa_key("attacker")
    for header in (
        {"jwk": public_jwk(mine)},
        {"jku": "http://127.0.0.1:1/keys", "kid": "x"},
        {"x5u": "http://127.0.0.1:1/cert", "x5c": [encode(public_pem(mine))]},
    ):
        assert refuse(tokens, mint(mine, "RS256", header)).reason == "jwt_signature"


@pytest.mark.parametrize(
    "header", [{"crit": ["exp"], "exp": 1}, {"crit": []}, {"b64": False, "crit": ["b64"]}, {"b64": True}]
)
def test_what_a_header_calls_critical_is_not_known_here(header: dict[str, Any]) -> None:
    assert refuse(build(), mint_by_hand({"alg": "HS256", **header}, claims())).reason == "jwt_critical"


@pytest.mark.parametrize("kid", ["../../../dev/null", "' OR 1=1 --", "a\x00b", "k" * 4000, "|/bin/sh", "\ud800"])
def test_the_name_of_a_key_is_compared_and_nothing_else(kid: str) -> None:
    keys = parse_jwks(key_set(public_jwk(rsa_key(), kid="r")))
    header = {"alg": "HS256", "kid": kid}

    assert refuse(build(keys), mint_by_hand(header, claims(), b"")).reason == "jwt_algorithm"
    assert refuse(build(keys), mint_by_hand({**header, "alg": "RS256"}, claims(), rsa_key("x"), "RS256")).reason


@pytest.mark.parametrize("header", [{"alg": 1}, {"alg": ["HS256"]}, {"alg": None}, {}, {"alg": "HS256", "kid": 1}])
def test_a_header_that_makes_no_sense_is_malformed(header: dict[str, Any]) -> None:
    assert refuse(build(), mint_by_hand(header, claims())).reason == "jwt_malformed"


@pytest.mark.parametrize("kind", ["logout+jwt", "secevent+jwt", "dpop+jwt", "JWE", 7])
def test_tokens_of_another_kind_open_nothing(kind: object) -> None:
    assert refuse(build(), mint_by_hand({"alg": "HS256", "typ": kind}, claims())).reason == "jwt_kind"


def test_a_name_that_is_there_twice_is_malformed() -> None:
    """A reader of the first and a reader of the last would see different people."""
    twice = json.dumps(claims()).replace('"sub": "ann"', '"sub": "ann", "sub": "bob"').encode()
    deep = json.dumps(claims(realm={"a": 1})).replace('"a": 1', '"a": 1, "a": 2').encode()
    header = b'{"alg": "none", "alg": "HS256"}'

    for token in (
        mint_by_hand({"alg": "HS256"}, twice),
        mint_by_hand({"alg": "HS256"}, deep),
        mint_by_hand(header, claims()),
    ):
        assert refuse(build(), token).reason == "jwt_malformed"


@pytest.mark.parametrize("payload", [b"[]", b"1", b'"x"', b"null", b"{", b"\xff", b"[" * 3000, b'{"exp": NaN}'])
def test_claims_that_are_no_object_are_malformed(payload: bytes) -> None:
    assert refuse(build(), mint_by_hand({"alg": "HS256"}, payload)).reason == "jwt_malformed"


@pytest.mark.parametrize("token", ["a.b.c", "..", "a.b", "a.b.c.d", "é.é.é", "a.b.c=", "a b.c.d", ".a.b", "a.b."])
def test_what_is_no_token_is_malformed(token: str) -> None:
    assert refuse(build(), token).reason == "jwt_malformed"


def test_a_token_that_is_too_long_is_not_even_read() -> None:
    assert refuse(build(), mint(padding="x" * 9000)).reason == "jwt_too_long"
    assert refuse(build(), "a.b." + "c" * 100_000).reason == "jwt_too_long"


def test_every_changed_character_is_noticed() -> None:
    token = mint()
    for live in range(0, len(token), 7):
        other = "A" if token[live] != "A" else "B"
        assert refuse(build(), token[:live] + other + token[live + 1 :]).reason.startswith("jwt_")


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"iss": None}, "jwt_issuer"),
        ({"iss": "https://issuer.example.evil"}, "jwt_issuer"),
        ({"iss": [ISSUER]}, "jwt_issuer"),
        ({"aud": None}, "jwt_audience"),
        ({"aud": "other"}, "jwt_audience"),
        ({"aud": []}, "jwt_audience"),
        ({"aud": [["warren"]]}, "jwt_audience"),
        ({"aud": {"warren": 1}}, "jwt_audience"),
        ({"sub": None}, "jwt_subject"),
        ({"sub": ""}, "jwt_subject"),
        ({"sub": 7}, "jwt_subject"),
        ({"sub": ["ann"]}, "jwt_subject"),
        ({"sub": True}, "jwt_subject"),
        ({"sub": "a\nb"}, "jwt_subject"),
        ({"sub": "a\x00"}, "jwt_subject"),
        ({"sub": " ann"}, "jwt_subject"),
        ({"sub": "x" * 256}, "jwt_subject"),
        ({"tenant": None}, "jwt_tenant"),
        ({"tenant": ""}, "jwt_tenant"),
        ({"tenant": 1}, "jwt_tenant"),
        ({"tenant": "a/b"}, "jwt_tenant"),
        ({"tenant": "acme\n"}, "jwt_tenant"),
        ({"tenant": "acme "}, "jwt_tenant"),
        ({"exp": None}, "jwt_no_expiry"),
        ({"exp": "soon"}, "jwt_times"),
        ({"exp": True}, "jwt_times"),
        ({"exp": 1e300}, "jwt_times"),
        ({"exp": 10**400}, "jwt_times"),
        ({"exp": -1}, "jwt_times"),
        ({"nbf": "x"}, "jwt_times"),
        ({"iat": {}}, "jwt_times"),
    ],
)
def test_a_genuine_token_must_say_what_it_has_to(changed: dict[str, Any], reason: str) -> None:
    refused = refuse(
        build(),
        mint_by_hand({"alg": "HS256"}, {**claims(), **changed} if None not in changed.values() else claims(**changed)),
    )

    assert refused.reason == reason
    assert len(refused.message.split()) > 3


def test_one_of_several_audiences_is_enough() -> None:
    assert accept(build(), mint(aud=["other", AUDIENCE, 7])).subject == "jwt:ann"


def test_a_token_for_another_audience_is_refused_even_without_a_configured_one() -> None:
    tokens = build(audiences=frozenset(), issuers=frozenset())

    assert accept(tokens, mint(aud=None, iss=None))
    assert refuse(tokens, mint(aud="other")).reason == "jwt_audience"


def test_times_hold_exactly_with_the_leeway_of_clocks() -> None:
    clock = Clock()
    at = int(clock.now)
    tokens = build(clock=clock, leeway_s=30.0)
    for changed, good, bad, reason in (
        ({"exp": at}, at + 29.9, at + 30, "jwt_expired"),
        ({"nbf": at + 100}, at + 70, at + 69.9, "jwt_early"),
        ({"iat": at + 100}, at + 70, at + 69.9, "jwt_early"),
    ):
        token = mint(**changed)
        clock.now = bad
        assert refuse(tokens, token).reason == reason
        clock.now = good
        assert accept(tokens, token)
        clock.now = bad
        if reason == "jwt_expired":
            assert refuse(tokens, token).reason == reason


def test_a_token_is_not_believed_for_longer_than_it_may_be_old() -> None:
    clock = Clock()
    at = int(clock.now)
    tokens = build(clock=clock, max_age_s=1000.0, leeway_s=0.0)
    long = mint(iat=at, exp=at + 10**8)

    assert accept(tokens, long).expires_at == at + 1000
    clock.now = at + 1000
    assert refuse(tokens, long).reason == "jwt_too_old"
    assert refuse(tokens, mint(iat=None, exp=at + 2500)).reason == "jwt_too_old"
    assert accept(tokens, mint(iat=None, exp=at + 1999))


def test_a_remembered_token_expires_to_the_second() -> None:
    clock = Clock()
    tokens = build(clock=clock, leeway_s=0.0)
    token = mint(exp=int(clock.now) + 10)
    assert accept(tokens, token)

    clock.now = int(clock.now) + 10
    assert refuse(tokens, token).reason == "jwt_expired"


def test_a_signature_is_checked_once_and_then_remembered() -> None:
    asked = Asked(SHARED.algorithms)
    tokens, token = build([dataclasses.replace(SHARED, algorithms=asked)]), mint()
    accept(tokens, token)
    assert asked.count == 1
    assert accept(tokens, token).subject == "jwt:ann"
    assert asked.count == 1
    assert len(tokens._cache) == 1
    assert accept(tokens, mint(sub="bob")).subject == "jwt:bob"
    assert asked.count == 2


def test_what_is_remembered_is_bounded_and_holds_no_token() -> None:
    tokens = build()

    async def ask() -> None:
        for number in range(4200):
            await tokens.authenticate(mint(sub=f"user{number}"))

    anyio.run(ask)
    assert len(tokens._cache) == 4096
    assert all(len(digest) == 32 for digest in tokens._cache)


def test_refused_tokens_are_not_remembered() -> None:
    tokens = build()
    refuse(tokens, mint("x" * 64))

    assert tokens._cache == {}


def test_the_bearer_of_a_token_is_no_owner_of_a_key_unless_the_operator_says_so() -> None:
    assert accept(build(), mint(sub="admin")).subject == "jwt:admin"
    assert accept(build(subject_prefix=""), mint(sub="admin")).owner == Owner("acme", "admin")


def test_the_tenant_is_the_operators_where_the_token_names_none() -> None:
    assert accept(build(tenant="default"), mint(tenant=None)).tenant == "default"
    assert accept(build(tenant="default", tenant_claim=""), mint(tenant="other")).tenant == "default"
    assert accept(build(tenants=frozenset({"acme"})), mint()).tenant == "acme"
    assert refuse(build(tenants=frozenset({"south"})), mint()).reason == "jwt_tenant"


def test_claims_are_found_by_their_full_name_and_within_objects() -> None:
    named = build(tenant_claim="https://acme.example/tenant", subject_claim="user.id", scope_claim="realm.roles")
    more: dict[str, Any] = {"user": {"id": "u1"}, "realm": {"roles": ["ops", 7, None]}}
    principal = accept(named, mint(tenant=None, sub=None, **{"https://acme.example/tenant": "north"}, **more))

    assert (principal.tenant, principal.subject, principal.scope) == ("north", "jwt:u1", Scope.ADMIN)


@pytest.mark.parametrize(
    ("said", "scope"),
    [
        ("openid w:read", Scope.READ),
        ("w:read w:run", Scope.RUN),
        ("w:run w:admin w:read", Scope.ADMIN),
        (["w:read"], Scope.READ),
        (["w:read w:admin"], None),
        ("openid", None),
        ("admin", None),
        ("", None),
        ({"w:admin": 1}, None),
        (7, None),
        ([["w:admin"]], None),
    ],
)
def test_scopes_are_what_the_operator_says_that_words_mean(said: object, scope: Scope | None) -> None:
    words = {"w:read": Scope.READ, "w:run": Scope.RUN, "w:admin": Scope.ADMIN}
    tokens = build(scopes=words, default_scope=None)
    token = mint(scope=said)

    if scope is None:
        assert refuse(tokens, token).reason == "jwt_scope"
        assert accept(build(scopes=words, default_scope=Scope.READ), token).scope is Scope.READ
    else:
        assert accept(tokens, token).scope is scope


def test_whose_a_genuine_token_was_is_known_also_when_it_is_refused() -> None:
    assert refuse(build(), mint(aud="other")).owner == Owner("acme", "jwt:ann")
    assert refuse(build(), mint("x" * 64, aud="other")).owner is None


def test_a_token_that_names_no_key_is_tried_with_a_few_only() -> None:
    keys = parse_jwks(key_set(*(public_jwk(rsa_key(str(number)), kid=str(number)) for number in range(5))))

    assert accept(build(keys[:4]), mint(rsa_key("3"), "RS256"))
    assert refuse(build(keys), mint(rsa_key("3"), "RS256")).reason == "jwt_unnamed_key"
