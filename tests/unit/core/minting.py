"""Tokens for tests, good ones and bad ones, and the keys to sign them with."""

from __future__ import annotations

import base64
import json
import time
from functools import cache
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

SECRET = "s" * 64
_SECRET = SECRET.encode()
ISSUER = "https://issuer.example"
AUDIENCE = "warren"


@cache
def rsa_key(name: str = "one", bits: int = 2048) -> rsa.RSAPrivateKey:
    assert name
    return rsa.generate_private_key(public_exponent=65537, key_size=bits)


@cache
def ec_key(curve: str = "secp256r1") -> ec.EllipticCurvePrivateKey:
    curves = {each.name: each for each in (ec.SECP256R1(), ec.SECP384R1(), ec.SECP521R1(), ec.SECP256K1())}
    return ec.generate_private_key(curves[curve])


@cache
def ed_key() -> ed25519.Ed25519PrivateKey:
    return ed25519.Ed25519PrivateKey.generate()


def public_pem(key: Any) -> bytes:
    return bytes(key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))


def public_jwk(key: Any, **more: Any) -> dict[str, Any]:
    """Write the public half of a key as an issuer publishes it."""
    public = key.public_key()
    kind: Any = OKPAlgorithm
    if isinstance(public, rsa.RSAPublicKey):
        kind = RSAAlgorithm
    elif isinstance(public, ec.EllipticCurvePublicKey):
        kind = ECAlgorithm
    return {**json.loads(kind.to_jwk(public)), **more}


def key_set(*entries: Any) -> bytes:
    return json.dumps({"keys": list(entries)}).encode()


def claims(**changed: Any) -> dict[str, Any]:
    """Claims of a good token; what is None is left out."""
    now = int(time.time())
    good = {"iss": ISSUER, "aud": AUDIENCE, "sub": "ann", "tenant": "acme", "iat": now, "exp": now + 600}
    return {name: value for name, value in {**good, **changed}.items() if value is not None}


def mint(key: Any = SECRET, algorithm: str = "HS256", headers: Any = None, /, **changed: Any) -> str:
    return jwt.encode(claims(**changed), key, algorithm=algorithm, headers=headers)


def encode(part: Any) -> str:
    raw = part if isinstance(part, bytes) else json.dumps(part).encode()
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def mint_by_hand(header: Any, payload: Any, key: Any = _SECRET, algorithm: str = "HS256") -> str:
    """Sign whatever it is, as no library would."""
    text = f"{encode(header)}.{encode(payload)}"
    signer = jwt.PyJWS().get_algorithm_by_name(algorithm)
    return f"{text}.{encode(signer.sign(text.encode(), key))}"
