"""Claims and signatures of shared links. Pure: no clock, no file, no store.

Rule 1. Everything that a link allows is in its claims, and all claims are signed: HMAC-SHA256 over the bytes as they
   stand in the token, which are parsed only after the signature was verified.
Rule 2. Signatures are compared in constant time.
Rule 3. A token is a credential. It is returned to its creator and stored nowhere.
"""

from __future__ import annotations

import base64
import binascii
import enum
import hashlib
import hmac
import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

KEY_BYTES = 32
_CONTEXT = b"warren link 1\0"
"""Domain separation: no other signature with the key is valid for a link."""
_TOKEN = re.compile(r"([A-Za-z0-9_-]{1,8000})\.([A-Za-z0-9_-]{43})")


class Kind(enum.StrEnum):
    """The target of a link."""

    PORT = "port"
    FILE = "file"
    TERMINAL = "terminal"


@dataclass(frozen=True, slots=True, kw_only=True)
class Claims:
    """The claims of a link: target, expiry and signer."""

    link_id: str
    kind: Kind
    sandbox_id: str
    target: str
    """The port, the exact path of the file, or the name of the terminal."""
    method: str
    """`GET` or `PUT` for a file; `*` for the others."""
    expires_at: int
    max_bytes: int | None = None
    """The largest upload."""
    tenant: str
    subject: str
    key_id: str | None = None
    """The signer's API key; revoking it invalidates the link."""


def sign(claims: Claims, key: bytes) -> str:
    """Build the token of a link: letters, digits, `-`, `_` and one dot."""
    values = {name: getattr(claims, name) for name in Claims.__slots__}
    body = _encode(json.dumps(values, separators=(",", ":")).encode())
    return f"{body}.{_encode(_mac(body, key))}"


def verify(token: str, keys: Iterable[bytes]) -> Claims | None:
    """Return the claims of a token that one of the keys signed."""
    match = _TOKEN.fullmatch(token)
    if match is None:
        return None
    try:
        given = _decode(match[2])
    except ValueError:
        return None
    # All keys are compared: the time does not reveal which one matched.
    good = [hmac.compare_digest(given, _mac(match[1], key)) for key in keys]
    return _parse(match[1]) if any(good) else None


def peek_kind(token: str) -> Kind | None:
    """Return the kind that a token claims, unverified: only for the form of a refusal."""
    claims = _parse(token.partition(".")[0])
    return None if claims is None else claims.kind


def _parse(body: str) -> Claims | None:
    """Parse signed claims; None for those of another version."""
    try:
        values = json.loads(_decode(body))
        return Claims(**{**values, "kind": Kind(values["kind"])})
    except (ValueError, TypeError, KeyError, RecursionError):
        return None


def _mac(body: str, key: bytes) -> bytes:
    return hmac.new(key, _CONTEXT + body.encode(), hashlib.sha256).digest()


def _encode(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _decode(text: str) -> bytes:
    try:
        data = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except binascii.Error as exc:
        raise ValueError(str(exc)) from exc
    if _encode(data) != text:
        # WHY: the last letter has unused bits; a link has one spelling only.
        raise ValueError("not as we write it")
    return data
