"""Any token is accepted, or refused for a reason."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import anyio
from hypothesis import example, given
from hypothesis import strategies as st

from unit.core.minting import AUDIENCE, ISSUER, SECRET, claims, mint_by_hand
from warren.core.identity.jwks import build_secret_key, parse_jwks
from warren.core.identity.token_rules import TokenRefused, TokenRules
from warren.core.identity.tokens import Tokens
from warren.domain.records import Scope

RULES = TokenRules(
    issuers=frozenset({ISSUER}),
    audiences=frozenset({AUDIENCE}),
    scope_claim="realm.roles",
    scopes={"admin": Scope.ADMIN},
    default_scope=None,
)
TOKENS = Tokens(RULES, [build_secret_key(SECRET.encode())])
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
NAMES = st.sampled_from(
    ["iss", "aud", "sub", "tenant", "exp", "nbf", "iat", "realm", "alg", "kid", "typ", "crit", "b64"]
)


def outcome(token: str) -> str:
    try:
        return f"accepted {anyio.run(TOKENS.authenticate, token).scope}"
    except TokenRefused as refused:
        return refused.reason


@given(changed=st.dictionaries(NAMES, JSON, max_size=4))
@example(changed={"exp": 10**400})
@example(changed={"exp": -(10**400)})
def test_claims_are_believed_or_refused(changed: dict[str, Any]) -> None:
    token = mint_by_hand({"alg": "HS256"}, json.dumps({**claims(), **changed}).encode())

    # No token makes an admin, or any role, without the very word.
    assert outcome(token).startswith("jwt_") or "admin" in json.dumps(changed)


@given(header=st.dictionaries(NAMES, JSON, max_size=4))
def test_headers_are_believed_or_refused(header: dict[str, Any]) -> None:
    token = mint_by_hand({"alg": "HS256", **header}, claims(realm={"roles": ["admin"]}))

    assert outcome(token).startswith(("jwt_", "accepted admin"))


@given(text=st.text(alphabet="aZ0_-.", max_size=60) | st.text(max_size=30))
def test_text_is_no_token(text: str) -> None:
    assert outcome(text).startswith("jwt_")


@given(entries=st.lists(st.dictionaries(st.sampled_from(["kty", "n", "e", "crv", "x", "y", "kid", "alg"]), JSON)))
def test_a_key_set_is_read_or_refused(entries: list[dict[str, Any]]) -> None:
    with contextlib.suppress(ValueError):
        assert parse_jwks(json.dumps({"keys": entries}).encode())
