"""Authentication with JSON Web Tokens. PyJWT verifies signatures; `token_rules` evaluates the claims."""

from __future__ import annotations

import hashlib
import time
from typing import TYPE_CHECKING

from jwt import PyJWS, PyJWTError
from jwt.exceptions import InvalidSignatureError
from jwt.utils import base64url_decode

from warren.core.identity.token_rules import SHAPE, Accepted, TokenRefused, check_claims, check_header, parse_object
from warren.domain.errors import Overloaded

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from warren.core.identity.jwks import TokenKey
    from warren.core.identity.jwks_source import KeySource
    from warren.core.identity.token_rules import TokenRules
    from warren.domain.records import Principal

_CACHED = 4096
_FRESH_S = 60.0
_TRIED = 4
"""Keys that one token is tried with; issuers with more must set `kid`."""
_JWS = PyJWS(options={"verify_signature": True, "enforce_minimum_key_length": True})


class Tokens:
    """Authenticates tokens. A signature is verified once a minute, the times in a token at each use."""

    def __init__(
        self,
        rules: TokenRules,
        keys: Iterable[TokenKey] = (),
        source: KeySource | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._rules = rules
        self._keys = tuple(keys)
        self._source = source
        self._clock = clock
        self._cache: dict[bytes, tuple[float, int, Accepted]] = {}

    async def run(self) -> None:
        """Keep published keys up to date; a task of the service. Returns where there are none."""
        if self._source is not None:
            await self._source.run()

    async def authenticate(self, token: str) -> Principal:
        """Return the principal of a token. Raises TokenRefused, and Overloaded while no keys could be fetched."""
        digest = hashlib.sha256(token.encode()).digest()
        accepted = self._recall(digest)
        if accepted is None:
            accepted = await self._check(token)
            self._remember(digest, accepted)
        return accepted.principal

    async def _check(self, token: str) -> Accepted:
        if len(token) > self._rules.max_bytes:
            raise TokenRefused("jwt_too_long", f"the token has more than {self._rules.max_bytes} bytes")
        if not SHAPE.fullmatch(token):
            raise TokenRefused("jwt_malformed")
        algorithm, kid = check_header(parse_object(_decode(token.partition(".")[0])))
        payload = self._verify(token, algorithm, kid)
        if payload is None and self._source is not None and await self._source.renew():
            payload = self._verify(token, algorithm, kid)
        if payload is None:
            if self._source is not None and not self._source.is_ready:
                raise Overloaded("the keys that tokens are checked with cannot be had now: try again", retry_after_s=5)
            raise TokenRefused("jwt_unknown_key")
        return check_claims(self._rules, parse_object(payload), self._clock())

    def _verify(self, token: str, algorithm: str, kid: str | None) -> bytes | None:
        """Return the signed claims; None without a matching key. Raises TokenRefused for an invalid signature."""
        published = self._source.keys if self._source is not None else ()
        named = [key for key in published if kid is None or key.kid in {kid, None}]
        fitting = [key for key in (*self._keys, *named) if algorithm in key.algorithms]
        if not fitting:
            if named or not self._source:
                raise TokenRefused("jwt_algorithm")
            return None
        if len(fitting) > _TRIED:
            raise TokenRefused("jwt_unnamed_key", "there are several keys: the token must name its own as kid")
        for key in fitting:
            try:
                payload: bytes = _JWS.decode(token, key.material, algorithms=[algorithm])
            except InvalidSignatureError:
                continue
            except (PyJWTError, ValueError, TypeError):
                raise TokenRefused("jwt_malformed") from None
            return payload
        if not named and self._source is not None:
            return None
        raise TokenRefused("jwt_signature")

    def _recall(self, digest: bytes) -> Accepted | None:
        kept = self._cache.get(digest)
        if kept is None:
            return None
        fresh_until, generation, accepted = kept
        if time.monotonic() < fresh_until and generation == self._generation and self._clock() < accepted.until:
            return accepted
        del self._cache[digest]
        return None

    def _remember(self, digest: bytes, accepted: Accepted) -> None:
        if len(self._cache) >= _CACHED:
            del self._cache[next(iter(self._cache))]
        self._cache[digest] = (time.monotonic() + _FRESH_S, self._generation, accepted)

    @property
    def _generation(self) -> int:
        return 0 if self._source is None else self._source.generation


def _decode(part: str) -> bytes:
    try:
        return base64url_decode(part)
    except ValueError:
        raise TokenRefused("jwt_malformed") from None
