"""Authentication: from the key or token of a request to a principal, and the check of its scope."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from warren.core.identity.token_rules import SHAPE, TokenRefused
from warren.core.policy.public_addresses import is_loopback
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
_TOKEN = "the token is not valid here: get another from its issuer"  # noqa: S105 - a sentence


class Auth:
    """Requires a key or a token; with `required=False` none, of programs of this machine."""

    def __init__(
        self,
        keys: Keys,
        *,
        tokens: Tokens | None = None,
        required: bool = True,
        origins: Collection[str] = (),
        anybody: Principal | None = None,
    ) -> None:
        self._anybody = anybody
        """The principal of callers without a key, where a dialect is open."""
        self._keys = keys
        self._tokens = tokens
        self._required = required
        self._origins = frozenset(origins)

    async def identify(
        self, headers: Iterable[tuple[bytes, bytes]], *, address: str = "", request_id: str = ""
    ) -> Principal:
        """Return the caller. Raises Unauthenticated; where no key is required, Forbidden for a foreign web page."""
        if not self._required:
            check_local_page(headers, self._origins)
            return LOCAL
        secret = read_secret(headers)
        if secret is None and self._anybody is not None:
            check_local_page(headers, self._origins)
            return self._anybody
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

    def opened_to(self, anybody: Principal) -> Auth:
        """Return an Auth that requires no key, but checks a key that is sent."""
        if not self._required:
            return self
        return Auth(self._keys, tokens=self._tokens, origins=self._origins, anybody=anybody)


def read_secret(headers: Iterable[tuple[bytes, bytes]]) -> str | None:
    """Return the secret of a request; a bearer token wins over `X-API-Key`."""
    other = None
    for name, value in headers:
        if name == b"authorization" and value[:7].lower() == b"bearer ":
            return value[7:].strip().decode("latin-1")
        if name == b"x-api-key":
            other = value.strip().decode("latin-1")
    return other


def _has_bare_key(headers: Iterable[tuple[bytes, bytes]]) -> bool:
    return any(name == b"authorization" and value.startswith(b"wrn_") for name, value in headers)


def check_scope(principal: Principal, scope: Scope) -> None:
    """Raise Forbidden when the key lacks the scope."""
    if not principal.may(scope):
        raise Forbidden(f"this needs a key with the scope {scope}, and yours has {principal.scope}")


def check_local_page(headers: Iterable[tuple[bytes, bytes]], origins: Collection[str] = ()) -> None:
    """Raise Forbidden for a request that a foreign web page makes a browser on this machine send.

    WHY: loopback keeps other machines out, but not the pages that a local browser has open. They send `Origin`; or they
    use a name of their own that resolves to 127.0.0.1, which is then in `Host`.
    """
    for name, value in headers:
        text = value.decode("latin-1")
        if name == b"host" and not is_loopback(_hostname(f"//{text}")):
            raise Forbidden(f"without keys this service answers only to localhost and 127.0.0.1, not to {text[:100]!r}")
        if name == b"origin" and text not in origins and not is_loopback(_hostname(text)):
            raise Forbidden(f"without keys this service does not answer web pages of {text[:100]!r}")


def _hostname(url: str) -> str:
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""
