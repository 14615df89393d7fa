"""What a shared link holds, and the signature that makes it ours. Pure: no clock, no file, no store.

Rule 1. Everything that a link allows is in the claims, and all of the claims are signed: HMAC-SHA256 over the bytes as
they stand in the token, which are parsed only after the signature was found good.
Rule 2. Signatures are compared in constant time.
Rule 3. A token is a credential. It is shown to whoever asked for it and written down nowhere.
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
"""So that no other signature made with the key is ever one of a link."""
_TOKEN = re.compile(r"([A-Za-z0-9_-]{1,8000})\.([A-Za-z0-9_-]{43})")


class Kind(enum.StrEnum):
    """What a link leads to."""

    PORT = "port"
    FILE = "file"
    TERMINAL = "terminal"


@dataclass(frozen=True, slots=True, kw_only=True)
class Claims:
    """All that a link says: what for, until when, and who gave it."""

    link_id: str
    kind: Kind
    sandbox_id: str
    target: str
    """The port, the exact path of the file, or the name of the terminal."""
    method: str
    """`GET` or `PUT` of a file; `*` of the others."""
    expires_at: int
    max_bytes: int | None = None
    """The most that an upload may have."""
    tenant: str
    subject: str
    key_id: str | None = None
    """The key of the signer; once that is revoked, the link is worth nothing."""


def sign(claims: Claims, key: bytes) -> str:
    """Write a link's token: letters, digits, `-`, `_` and one dot."""
    values = {name: getattr(claims, name) for name in Claims.__slots__}
    body = _encode(json.dumps(values, separators=(",", ":")).encode())
    return f"{body}.{_encode(_mac(body, key))}"


def verify(token: str, keys: Iterable[bytes]) -> Claims | None:
    """Return what a token says if one of the keys signed it."""
    match = _TOKEN.fullmatch(token)
    if match is None:
        return None
    try:
        given = _decode(match[2])
    except ValueError:
        return None
    # All are compared: how long it takes says nothing of which it was.
    good = [hmac.compare_digest(given, _mac(match[1], key)) for key in keys]
    return _parse(match[1]) if any(good) else None


def peek_kind(token: str) -> Kind | None:
    """Return the kind that a token claims to be of, whoever wrote it: good for nothing but how to refuse it."""
    claims = _parse(token.partition(".")[0])
    return None if claims is None else claims.kind


def _parse(body: str) -> Claims | None:
    """Read claims that we signed; None for those of a version that had others."""
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
        # WHY: the last letter has bits that say nothing; one link has one spelling.
        raise ValueError("not as we write it")
    return data
