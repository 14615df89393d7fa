"""Token rules: which claims a token must have, and the principal that they describe. Pure."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NoReturn

from warren.domain.records import Owner, Principal, Scope

if TYPE_CHECKING:
    from collections.abc import Mapping

SHAPE = re.compile(r"[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+")
"""Three parts of base64url, unlike any API key."""

_TYPES = frozenset({"jwt", "at+jwt", "application/at+jwt"})
"""Types of access tokens; other tokens of the same issuer, such as logout tokens, are refused."""
_TENANT = re.compile(r"\w[\w .@+-]{0,63}")
_MAX_SUBJECT = 255
_LATEST = 1e11


class TokenRefused(Exception):
    """A token is refused. The reason is for the audit record; the message, if any, for the caller."""

    def __init__(self, reason: str, message: str = "", *, owner: Owner | None = None) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message
        self.owner = owner
        """The owner, if the signature is valid."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenRules:
    """The operator's choices about tokens."""

    issuers: frozenset[str] = frozenset()
    audiences: frozenset[str] = frozenset()
    leeway_s: float = 30.0
    """Tolerated difference between the clocks of the issuer and this host."""
    max_age_s: float = 86_400.0
    max_bytes: int = 8192
    subject_claim: str = "sub"
    subject_prefix: str = "jwt:"
    """Subjects of API keys have no colon, so the two cannot collide."""
    tenant_claim: str = "tenant"
    tenant: str = ""
    """Tenant of tokens that name none; if empty, those are refused."""
    tenants: frozenset[str] = frozenset()
    """Tenants that tokens may name; empty allows any."""
    scope_claim: str = "scope"
    scopes: Mapping[str, Scope] = field(default_factory=dict)
    """Scopes by the issuer's names for them."""
    default_scope: Scope | None = Scope.RUN


@dataclass(frozen=True, slots=True)
class Accepted:
    """An accepted token."""

    principal: Principal
    until: float
    """When it expires."""


def parse_object(raw: bytes) -> dict[str, Any]:
    """Parse a JSON object without duplicate names. Raises TokenRefused."""
    try:
        value = json.loads(raw, object_pairs_hook=_once, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        raise TokenRefused("jwt_malformed") from None
    if not isinstance(value, dict):
        raise TokenRefused("jwt_malformed")
    return value


def check_header(header: Mapping[str, Any]) -> tuple[str, str | None]:
    """Return algorithm and key id. Headers that point to keys, such as `jku`, are ignored. Raises TokenRefused."""
    algorithm, kid, kind = header.get("alg"), header.get("kid"), header.get("typ", "JWT")
    if not isinstance(algorithm, str) or not (kid is None or isinstance(kid, str)):
        raise TokenRefused("jwt_malformed")
    # WHY: `crit` demands unknown extensions, and with `b64` the signed text would differ from the parsed one.
    if "crit" in header or "b64" in header:
        raise TokenRefused("jwt_critical")
    if not isinstance(kind, str) or kind.lower() not in _TYPES:
        raise TokenRefused("jwt_kind")
    return algorithm, kid


def check_claims(rules: TokenRules, claims: Mapping[str, Any], now: float) -> Accepted:
    """Return the principal of a verified token and its expiry. Raises TokenRefused."""
    owner = Owner(_find_tenant(rules, claims), _find_subject(rules, claims))
    until = _check_times(rules, claims, now, owner)
    _check_parties(rules, claims, owner)
    scope = _find_scope(rules, claims, owner)
    return Accepted(Principal(subject=owner.subject, tenant=owner.tenant, scope=scope, expires_at=until), until)


def _find_subject(rules: TokenRules, claims: Mapping[str, Any]) -> str:
    subject = _look_up(claims, rules.subject_claim)
    if not isinstance(subject, str) or not 0 < len(subject) <= _MAX_SUBJECT or not _is_plain(subject):
        raise TokenRefused(
            "jwt_subject", f"the token must name its bearer as {rules.subject_claim}: 1 to {_MAX_SUBJECT} letters"
        )
    return rules.subject_prefix + subject


def _find_tenant(rules: TokenRules, claims: Mapping[str, Any]) -> str:
    tenant = _look_up(claims, rules.tenant_claim) if rules.tenant_claim else None
    if tenant is None:
        tenant = rules.tenant
    if not isinstance(tenant, str) or not _TENANT.fullmatch(tenant) or not _is_plain(tenant):
        raise TokenRefused("jwt_tenant", f"the token must name a tenant as {rules.tenant_claim}")
    if rules.tenants and tenant not in rules.tenants and tenant != rules.tenant:
        raise TokenRefused("jwt_tenant", f"tokens of the tenant {tenant!r} are not taken here")
    return tenant


def _check_times(rules: TokenRules, claims: Mapping[str, Any], now: float, owner: Owner) -> float:
    expires, begins, issued = (_read_time(claims, name) for name in ("exp", "nbf", "iat"))
    if expires is None:
        raise TokenRefused("jwt_no_expiry", "the token has no exp: only tokens that expire are taken", owner=owner)
    if begins is not None and now < begins - rules.leeway_s:
        raise TokenRefused("jwt_early", "the token is not valid yet: is a clock wrong?", owner=owner)
    if issued is not None and now < issued - rules.leeway_s:
        raise TokenRefused("jwt_early", "the token was issued in the future: is a clock wrong?", owner=owner)
    # A token without iat may have just been issued, so its remaining life is bounded by the maximum age.
    if issued is None and expires > now + rules.max_age_s:
        raise TokenRefused("jwt_too_old", "the token is valid for too long, and says not since when", owner=owner)
    until = expires + rules.leeway_s
    if issued is not None:
        until = min(until, issued + rules.max_age_s + rules.leeway_s)
    if now >= expires + rules.leeway_s:
        raise TokenRefused("jwt_expired", "the token has expired: get another", owner=owner)
    if now >= until:
        raise TokenRefused("jwt_too_old", "the token was issued too long ago: get another", owner=owner)
    return until


def _check_parties(rules: TokenRules, claims: Mapping[str, Any], owner: Owner) -> None:
    issuer, audience = claims.get("iss"), claims.get("aud")
    if rules.issuers and not (isinstance(issuer, str) and issuer in rules.issuers):
        raise TokenRefused("jwt_issuer", "the token is of an issuer who is not trusted here", owner=owner)
    named = [audience] if isinstance(audience, str) else audience
    if named is None and not rules.audiences:
        return
    # A token with an audience is for that audience only, also where the operator configured none.
    if not isinstance(named, list) or not any(isinstance(each, str) and each in rules.audiences for each in named):
        raise TokenRefused("jwt_audience", "the token is for another audience than this service", owner=owner)


def _find_scope(rules: TokenRules, claims: Mapping[str, Any], owner: Owner) -> Scope:
    said = _look_up(claims, rules.scope_claim) if rules.scope_claim else None
    words = said.split() if isinstance(said, str) else said if isinstance(said, list) else []
    order = list(Scope)
    meant = [rules.scopes[word] for word in words if isinstance(word, str) and word in rules.scopes]
    scope = max(meant, key=order.index, default=rules.default_scope)
    if scope is None:
        raise TokenRefused("jwt_scope", f"the token has no scope for this service in {rules.scope_claim}", owner=owner)
    return scope


def _look_up(claims: Mapping[str, Any], name: str) -> Any:
    """Return a claim; a name with dots is also looked up in nested objects."""
    if name in claims:
        return claims[name]
    value: Any = claims
    for part in name.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    return value


def _read_time(claims: Mapping[str, Any], name: str) -> float | None:
    if name not in claims:
        return None
    value: Any = claims[name]
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not 0 <= value < _LATEST:
        raise TokenRefused("jwt_times", f"the token's {name} is no time")
    return float(value)


def _is_plain(text: str) -> bool:
    return text.isprintable() and text == text.strip()


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name is there twice")
    return found


def _no_constant(name: str) -> NoReturn:
    raise ValueError(name)
