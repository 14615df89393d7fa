"""Authentication: from the key or token of a request to a principal, and the check of its scope."""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from warren.core.identity.token_rules import SHAPE, TokenRefused
from warren.core.policy.public_addresses import is_local_name, is_loopback, is_within
from warren.domain.errors import Forbidden
from warren.domain.records import Principal, Scope

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from warren.core.identity.keys import Keys
    from warren.core.identity.tokens import Tokens

LOCAL = Principal(subject="local", scope=Scope.ADMIN)
"""Every caller, where no key is required."""
ANONYMOUS = Principal(subject="anonymous", tenant="", scope=Scope.READ)
"""The caller of operations that need no key; it owns nothing."""
CHALLENGE = {"WWW-Authenticate": 'Bearer realm="warren"'}
"""A header of every 401."""

_MISSING = "there is no API key in the request: send `Authorization: Bearer wrn_…` or `X-API-Key: wrn_…`"
_NO_BEARER = "the word Bearer is missing: send `Authorization: Bearer wrn_…`, or the key alone as `X-API-Key: wrn_…`"
_NO_TOKENS = "this service takes API keys, and no tokens: its operator has not set up [jwt]"
_BASIC = b"basic "
_KEY = "wrn_"
_DEFAULT_PORTS = {"http": 80, "https": 443}
_SCHEMES = {"ws": "http", "wss": "https"}
_TOKEN = "the token is not valid here: get another from its issuer"  # noqa: S105 - a sentence


@dataclass(frozen=True, slots=True, kw_only=True)
class Door:
    """Who may come without a key where a dialect is open, and the principal that they are."""

    principal: Principal
    is_open: bool = False
    """For all programs of this machine: the service is on a loopback address then."""
    networks: tuple[str, ...] = ()
    """For these addresses of clients."""


class Auth:
    """Requires a key or a token; with `required=False` none, of programs of this machine."""

    def __init__(
        self,
        keys: Keys,
        *,
        tokens: Tokens | None = None,
        required: bool = True,
        origins: Collection[str] = (),
        door: Door | None = None,
    ) -> None:
        self._door = door
        self._keys = keys
        self._tokens = tokens
        self._required = required
        self._origins = frozenset(origins)

    async def identify(
        self,
        headers: Iterable[tuple[bytes, bytes]],
        *,
        address: str = "",
        request_id: str = "",
        scheme: str = "http",
    ) -> Principal:
        """Return the caller. Raises Unauthenticated; where no key is required, Forbidden for a foreign web page."""
        if not self._required:
            check_local_page(headers, self._origins, scheme)
            return LOCAL
        secret = read_secret(headers)
        if secret is None and self._door is not None:
            if self._door.is_open:
                check_local_page(headers, self._origins, scheme)
                return self._door.principal
            if is_within(address, self._door.networks):
                check_no_page(headers)
                return self._door.principal
        if secret is None:
            reason, message = ("no_bearer", _NO_BEARER) if _has_bare_key(headers) else ("missing", _MISSING)
            self._keys.refuse(reason, address=address, request_id=request_id, message=message)
        # Keys and tokens have different shapes: neither is ever tried as the other.
        if SHAPE.fullmatch(secret):
            return await self._identify_token(secret, address, request_id)
        return await self._keys.authenticate(secret, address=address, request_id=request_id)

    async def _identify_token(self, token: str, address: str, request_id: str) -> Principal:
        if self._tokens is None:
            self._keys.refuse("jwt_not_taken", address=address, request_id=request_id, message=_NO_TOKENS)
        try:
            return await self._tokens.authenticate(token)
        except TokenRefused as refused:
            who = None if refused.owner is None else Principal(tenant=refused.owner[0], subject=refused.owner[1])
            message = refused.message or _TOKEN
            self._keys.refuse(refused.reason, address=address, request_id=request_id, who=who, message=message)

    def opened_to(self, door: Door) -> Auth:
        """Return an Auth that lets callers in by this door, and checks a key that is sent."""
        if not self._required:
            return self
        return Auth(self._keys, tokens=self._tokens, origins=self._origins, door=door)


def read_secret(headers: Iterable[tuple[bytes, bytes]]) -> str | None:
    """Return the secret of a request; a bearer token wins over `X-API-Key`, and that over Basic."""
    other = basic = None
    for name, value in headers:
        if name == b"authorization" and value[:7].lower() == b"bearer ":
            return value[7:].strip().decode("latin-1")
        if name == b"authorization" and value[: len(_BASIC)].lower() == _BASIC:
            basic = _read_basic(value[len(_BASIC) :])
        if name == b"x-api-key":
            other = value.strip().decode("latin-1")
    return basic if other is None else other


def _read_basic(value: bytes) -> str | None:
    """Return the key in Basic credentials: the password or, where a client has one field only, the user name.

    Credentials without one are not ours: a proxy before the service may ask for them. Tokens are not taken, as these
    names are fields that people fill in. No 401 asks for Basic, so that no browser keeps a key and sends it by itself.
    """
    try:
        user, _, password = base64.b64decode(value.strip(), validate=True).decode("latin-1").partition(":")
    except (binascii.Error, ValueError):
        return None
    return next((each for each in (password, user) if each.startswith(_KEY)), None)


def _has_bare_key(headers: Iterable[tuple[bytes, bytes]]) -> bool:
    return any(name == b"authorization" and value.startswith(b"wrn_") for name, value in headers)


def check_scope(principal: Principal, scope: Scope) -> None:
    """Raise Forbidden when the key lacks the scope."""
    if not principal.may(scope):
        raise Forbidden(f"this needs a key with the scope {scope}, and yours has {principal.scope}")


def check_local_page(headers: Iterable[tuple[bytes, bytes]], origins: Collection[str], scheme: str) -> None:
    """Raise Forbidden for a request that a web page, other than our own, makes a browser on this machine send.

    WHY: loopback keeps other machines out, but not the pages that a local browser has open, from anywhere or from
    another port of this machine. They send `Origin` with everything but plain reading, whose answers they cannot see;
    or they use a name of their own that resolves to 127.0.0.1, which is then in `Host`.
    """
    host, origin = _find(headers, b"host"), _find(headers, b"origin")
    if host is not None and not is_loopback(_hostname(f"//{host}")):
        raise Forbidden(f"without keys this service answers only to localhost and 127.0.0.1, not to {host[:100]!r}")
    if origin is None or origin in origins:
        return
    page = _parse_origin(origin)
    if page is None or page != _parse_origin(f"{_SCHEMES.get(scheme, scheme)}://{host or ''}"):
        raise Forbidden(
            f"without keys this service does not answer web pages of {origin[:100]!r}: see serve.cors_origins"
        )


def check_no_page(headers: Iterable[tuple[bytes, bytes]]) -> None:
    """Raise Forbidden for a request of a browser, where the address alone lets a client in.

    WHY: any page makes a browser of that network send requests. Those that change something have an `Origin`; and the
    others are read only by a page whose own name leads here, so no name counts that a stranger could own.
    """
    host = _find(headers, b"host") or ""
    if _find(headers, b"origin") is not None or _find(headers, b"sec-fetch-site") is not None:
        raise Forbidden("without a key this service does not answer web pages")
    if not is_local_name(_hostname(f"//{host}")):
        raise Forbidden(f"without a key call this service by its address or a local name, not as {host[:100]!r}")


def _find(headers: Iterable[tuple[bytes, bytes]], wanted: bytes) -> str | None:
    return next((value.decode("latin-1") for name, value in headers if name == wanted), None)


def _parse_origin(url: str) -> tuple[str, str, int] | None:
    try:
        parts = urlsplit(url)
        port = parts.port or _DEFAULT_PORTS.get(parts.scheme, 0)
    except ValueError:
        return None
    return (parts.scheme, parts.hostname, port) if parts.hostname and port else None


def _hostname(url: str) -> str:
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""
