"""Keys for tokens: which are accepted from a secret, from PEM and from a key set."""

from __future__ import annotations

import json
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import dsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from unit.core.minting import ec_key, ed_key, key_set, public_jwk, public_pem, rsa_key
from warren.core.identity.jwks import MAX_BYTES, build_pem_keys, build_secret_key, parse_jwks


@pytest.mark.parametrize(
    ("length", "algorithms"),
    [(32, {"HS256"}), (48, {"HS256", "HS384"}), (64, {"HS256", "HS384", "HS512"}), (100, {"HS256", "HS384", "HS512"})],
)
def test_a_secret_is_for_the_hashes_that_are_no_longer_than_it(length: int, algorithms: set[str]) -> None:
    assert build_secret_key(b"s" * length).algorithms == algorithms


@pytest.mark.parametrize(
    ("secret", "allowed", "said"),
    [
        (b"", (), "has 0 bytes and needs 32"),
        (b"s" * 31, (), "needs 32"),
        (b"s" * 32, ("HS512",), "needs 64"),
        (b"s" * 47, ("HS256", "HS384"), "needs 48"),
        (b"s" * 64, ("RS256",), "none of HS256"),
        (public_pem(rsa_key()), (), "public_key_file"),
        (public_pem(ec_key()), (), "public_key_file"),
    ],
)
def test_a_secret_that_is_none_is_refused_in_a_sentence(secret: bytes, allowed: tuple[str, ...], said: str) -> None:
    with pytest.raises(ValueError, match=said) as caught:
        build_secret_key(secret, allowed)
    assert not secret or secret.decode() not in str(caught.value)


def test_the_secret_is_not_in_what_is_printed_of_its_key() -> None:
    assert "hunter2" not in repr(build_secret_key(b"hunter2" * 5))


def test_a_file_of_pem_may_have_several_keys() -> None:
    text = b"issued 2026\n" + public_pem(rsa_key()) + public_pem(ec_key("secp384r1")) + public_pem(ed_key())
    kinds = [sorted(key.algorithms) for key in build_pem_keys(text)]

    assert kinds == [["PS256", "PS384", "PS512", "RS256", "RS384", "RS512"], ["ES384"], ["EdDSA"]]


def _private_pem() -> bytes:
    return rsa_key().private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b"", "no `-----BEGIN PUBLIC KEY"),
        (b"x" * 1000, "no `-----BEGIN PUBLIC KEY"),
        (_private_pem(), "private key"),
        (b"-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----", "no public key"),
        (public_pem(rsa_key("weak", 1024)), "1024 bits"),
        (public_pem(ec_key("secp256k1")), "secp256k1"),
        (public_pem(dsa.generate_private_key(1024)), "RSA, EC or Ed25519"),
        (public_pem(ed_key()) * 101, "more than 100"),
    ],
)
def test_pem_that_cannot_check_tokens_is_refused_in_a_sentence(text: bytes, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        build_pem_keys(text)


def test_keys_that_the_algorithms_leave_no_use_for_are_refused() -> None:
    with pytest.raises(ValueError, match="allow none"):
        build_pem_keys(public_pem(ec_key()), ("RS256",))


@pytest.mark.parametrize(
    "entry",
    [
        None,
        [],
        "key",
        {},
        {"kty": "oct", "k": "c2VjcmV0"},
        {"kty": ["RSA"]},
        {"kty": "RSA", "n": "AQAB"},
        {"kty": "RSA", "n": 5, "e": "AQAB"},
        {"kty": "RSA", "n": "!!!", "e": "AQAB"},
        {"kty": "EC", "crv": "P-256", "x": "AA", "y": "AA"},
        {"kty": "EC", "crv": "P-257", "x": "AA", "y": "AA"},
        {"kty": "OKP", "crv": "Ed25519", "x": "AA"},
        {"kty": "OKP", "crv": "X25519", "x": "A" * 43},
        public_jwk(rsa_key("weak", 1024)),
        public_jwk(ec_key("secp256k1")),
        public_jwk(rsa_key(), use="enc"),
        public_jwk(rsa_key(), key_ops=["sign"]),
        public_jwk(rsa_key(), key_ops="verify"),
        public_jwk(rsa_key(), alg="HS256"),
        public_jwk(rsa_key(), alg="none"),
        public_jwk(rsa_key(), alg=["RS256"]),
        public_jwk(rsa_key(), kid=7),
        public_jwk(rsa_key(), kid=["a"]),
    ],
)
def test_what_is_no_key_for_us_is_passed_over(entry: object) -> None:
    good = public_jwk(ec_key(), kid="good")

    assert [key.kid for key in parse_jwks(key_set(entry, good))] == ["good"]
    with pytest.raises(ValueError, match="no key that tokens could be checked with"):
        parse_jwks(key_set(entry))


def test_a_key_set_that_leaks_private_keys_still_gives_only_public_ones() -> None:
    numbers = rsa_key().private_numbers()
    leaked: dict[str, Any] = public_jwk(rsa_key()) | dict.fromkeys(("d", "p", "q", "dp", "dq", "qi"), "AQAB")

    assert numbers.d
    assert type(parse_jwks(key_set(leaked))[0].material).__name__ == type(rsa_key().public_key()).__name__


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        (b"", "not JSON"),
        (b"<html>", "not JSON"),
        (b"\xff\xfe", "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b"[]", 'no list "keys"'),
        (b'{"keys": {}}', 'no list "keys"'),
        (b'{"keys": []}', "no key"),
        (json.dumps({"keys": [{}] * 101}).encode(), "more than 100"),
        (b" " * (MAX_BYTES + 1), "256 KiB"),
    ],
)
def test_what_is_no_key_set_is_refused_in_a_sentence(raw: bytes, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        parse_jwks(raw)
