"""Keys for token signatures: from a shared secret, from PEM, from a JSON Web Key Set. No I/O.

Each key has its algorithms, so that a token cannot choose one: a public key never checks an HMAC.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import load_pem_public_key
from jwt import PyJWTError
from jwt.algorithms import ECAlgorithm, HMACAlgorithm, OKPAlgorithm, RSAAlgorithm

if TYPE_CHECKING:
    from collections.abc import Collection

MAX_KEYS = 100
"""Of one set; a larger set is refused as a whole."""
MAX_BYTES = 256 * 1024
"""Of a key set, or of a PEM file."""
_RSA_BITS = range(2048, 8193)
_HMAC = {"HS256": 32, "HS384": 48, "HS512": 64}
"""Bytes of each hash: a shorter secret would be the weakest part."""
_RSA = frozenset({"RS256", "RS384", "RS512", "PS256", "PS384", "PS512"})
_CURVES = {"secp256r1": "ES256", "secp384r1": "ES384", "secp521r1": "ES512"}
ALGORITHMS = frozenset({*_HMAC, *_RSA, *_CURVES.values(), "EdDSA"})
"""All supported algorithms. `none` is not among them."""

_PEM = re.compile(rb"-----BEGIN [A-Z ]+-----.+?-----END [A-Z ]+-----", re.DOTALL)
_PUBLIC_PARTS = frozenset({"kty", "n", "e", "crv", "x", "y"})
_READERS: dict[str, Any] = {"RSA": RSAAlgorithm.from_jwk, "EC": ECAlgorithm.from_jwk, "OKP": OKPAlgorithm.from_jwk}


@dataclass(frozen=True, slots=True)
class TokenKey:
    """A key and its algorithms."""

    material: Any = field(repr=False)
    algorithms: frozenset[str]
    kid: str | None = None
    """The `kid` of its publisher; None for keys without one."""


def build_secret_key(secret: bytes, allowed: Collection[str] = ()) -> TokenKey:
    """Build the key of a shared secret. Raises ValueError: one sentence."""
    wanted = frozenset(_HMAC) & frozenset(allowed or _HMAC)
    fitting = {name for name in wanted if len(secret) >= _HMAC[name]}
    least = min((_HMAC[name] for name in wanted), default=0)
    if wanted and (not fitting or (allowed and fitting != wanted)):
        most = max(_HMAC[name] for name in wanted) if allowed else least
        raise ValueError(f"the secret has {len(secret)} bytes and needs {most}: make one with `openssl rand -hex 64`")
    if not wanted:
        raise ValueError("there is a secret, but none of HS256, HS384 and HS512 among the algorithms")
    try:
        HMACAlgorithm(HMACAlgorithm.SHA256).prepare_key(secret)
    except PyJWTError as exc:
        # WHY: with a public key as the secret, everyone who has it could sign tokens.
        raise ValueError("the secret is a public or private key: name its file as jwt.public_key_file") from exc
    return TokenKey(secret, frozenset(fitting))


def build_pem_keys(text: bytes, allowed: Collection[str] = ()) -> tuple[TokenKey, ...]:
    """Build the public keys of a PEM file. Raises ValueError: one sentence."""
    found = _PEM.findall(text[:MAX_BYTES])
    if not found:
        raise ValueError("there is no `-----BEGIN PUBLIC KEY-----` in it")
    if len(found) > MAX_KEYS:
        raise ValueError(f"it has more than {MAX_KEYS} keys")
    keys = []
    for each in found:
        if b"PRIVATE" in each[:40]:
            raise ValueError("it has a private key, which only the issuer may have: write out the public one")
        try:
            material = load_pem_public_key(each)
        except (ValueError, UnsupportedAlgorithm) as exc:
            raise ValueError("it has a block that is no public key") from exc
        keys.append(TokenKey(material, _restrict(_check_material(material), allowed)))
    return tuple(keys)


def parse_jwks(raw: bytes, allowed: Collection[str] = ()) -> tuple[TokenKey, ...]:
    """Build the usable public keys of a JSON Web Key Set; others are skipped. Raises ValueError: one sentence."""
    if len(raw) > MAX_BYTES:
        raise ValueError(f"the key set has more than {MAX_BYTES >> 10} KiB")
    try:
        document = json.loads(raw)
    except (ValueError, RecursionError) as exc:
        raise ValueError("the key set is not JSON") from exc
    entries = document.get("keys") if isinstance(document, dict) else None
    if not isinstance(entries, list):
        raise ValueError('the key set has no list "keys"')  # noqa: TRY004 - a foreign value
    if len(entries) > MAX_KEYS:
        raise ValueError(f"the key set has more than {MAX_KEYS} keys")
    keys = tuple(key for entry in entries if (key := _read_entry(entry, allowed)) is not None)
    if not keys:
        raise ValueError("the key set has no key that tokens could be checked with")
    return keys


def _read_entry(entry: object, allowed: Collection[str]) -> TokenKey | None:
    """Read one key of a set; None for one of another use or kind, or a weak or broken one."""
    if not isinstance(entry, dict) or entry.get("use", "sig") != "sig":
        return None
    uses, kid, kind = entry.get("key_ops"), entry.get("kid"), entry.get("kty")
    if uses is not None and not (isinstance(uses, list) and "verify" in uses):
        return None
    # WHY: a published secret (`oct`) is none. The private half of a key is never read either.
    reader = _READERS.get(kind) if isinstance(kind, str) else None
    if reader is None or not (kid is None or isinstance(kid, str)):
        return None
    try:
        material = reader({name: value for name, value in entry.items() if name in _PUBLIC_PARTS})
        algorithms = _restrict(_check_material(material), allowed)
    except (PyJWTError, ValueError, TypeError, AttributeError, UnsupportedAlgorithm):
        return None
    only = entry.get("alg")
    algorithms = algorithms if only is None else algorithms & {only if isinstance(only, str) else ""}
    return TokenKey(material, algorithms, kid) if algorithms else None


def _check_material(material: object) -> frozenset[str]:
    """Return the algorithms of a public key. Raises ValueError for a weak or unsupported one."""
    if isinstance(material, rsa.RSAPublicKey):
        if material.key_size not in _RSA_BITS:
            raise ValueError(f"an RSA key has {material.key_size} bits, and must have 2048 to 8192")
        return _RSA
    if isinstance(material, ec.EllipticCurvePublicKey):
        if material.curve.name not in _CURVES:
            raise ValueError(f"a key is of the curve {material.curve.name}, and must be of P-256, P-384 or P-521")
        return frozenset({_CURVES[material.curve.name]})
    if isinstance(material, ed25519.Ed25519PublicKey):
        return frozenset({"EdDSA"})
    raise ValueError(f"a {type(material).__name__} cannot check tokens: use RSA, EC or Ed25519")


def _restrict(algorithms: frozenset[str], allowed: Collection[str]) -> frozenset[str]:
    left = algorithms & frozenset(allowed) if allowed else algorithms
    if not left:
        raise ValueError(f"a key is for {', '.join(sorted(algorithms))}, and the algorithms allow none of these")
    return left
