"""Shared links: access to one thing in one sandbox without a key, given by its owner, until it expires.

A link allows what its claims say and nothing else, as the principal who signed it, and no longer than that principal's
own credentials. Nothing is stored: everything is in the token (`signing.py`).
"""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from warren.core.identity.keys import is_in_force
from warren.core.shared_links.signing import Claims, Kind, sign, verify
from warren.domain.errors import Forbidden, InvalidRequest, NotFound
from warren.domain.records import Principal, Scope
from warren.domain.values import new_id

if TYPE_CHECKING:
    from warren.core.audit.log import Audit
    from warren.core.identity.keys import Keys
    from warren.core.sandboxes.sandboxes import Sandboxes
    from warren.core.shared_links.signing_keys import SigningKeys
    from warren.domain.records import Caller

MAX_PATH = 1024
_TERMINAL = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")


@dataclass(frozen=True, slots=True, kw_only=True)
class NewSharedLink:
    """A request to share something."""

    kind: Kind
    target: str
    method: str = "*"
    expires_in_s: float
    max_bytes: int | None = None


class SharedLinks:
    """Creates links, and resolves those that come back."""

    def __init__(self, sandboxes: Sandboxes, keys: Keys, audit: Audit, signing: SigningKeys, *, max_s: float) -> None:
        self._sandboxes = sandboxes
        self._keys = keys
        self._audit = audit
        self._signing = signing
        self._max_s = max_s

    async def create(self, caller: Caller, sandbox_id: str, new: NewSharedLink) -> tuple[Claims, str]:
        """Create a link: return its claims and its token. Raises InvalidRequest, NotFound, Forbidden and StoreError."""
        self._check(new)
        who = caller.principal
        if not who.may(_needed(new.kind, new.method)):
            raise Forbidden(f"this link would allow more than your key with the scope {who.scope} does")
        sandbox = await self._sandboxes.get(caller, sandbox_id)
        if sandbox.owner != who.owner:
            raise Forbidden(f"sandbox {sandbox_id} has another owner, and only its owner can share it")
        expires_at = time.time() + new.expires_in_s
        claims = Claims(
            link_id=new_id("lnk"),
            kind=new.kind,
            sandbox_id=sandbox_id,
            target=new.target,
            method=new.method,
            expires_at=int(expires_at if who.expires_at is None else min(expires_at, who.expires_at)),
            max_bytes=new.max_bytes,
            tenant=who.tenant,
            subject=who.subject,
            key_id=who.key_id,
        )
        token = sign(claims, self._signing.signing())
        await self._audit.record(caller, "link.create", sandbox_id=sandbox_id, **_describe(claims))
        return claims, token

    async def open(self, token: str, *, address: str = "", request_id: str = "") -> tuple[Principal, Claims]:
        """Return the claims of a link and the principal that it acts for. Raises NotFound and Forbidden."""
        claims = verify(token, self._signing.verifying())
        if claims is None:
            self._audit.refuse("link", address=address, request_id=request_id)
            raise NotFound("there is no such link: it was cut short, or taken back")
        if claims.expires_at <= time.time():
            raise Forbidden("this link has expired: ask its sender for another")
        needed = _needed(claims.kind, claims.method)
        who = Principal(subject=claims.subject, tenant=claims.tenant, scope=needed, key_id=claims.key_id)
        if not await self._is_good(who):
            self._audit.refuse("link_of_revoked_key", address=address, request_id=request_id, who=who)
            raise Forbidden("the sender of this link may no longer do what it is for: ask for another")
        return who, claims

    async def _is_good(self, who: Principal) -> bool:
        """Whether the signer's key still allows what the link does; without a key, the link is good to its end."""
        if who.key_id is None:
            return True
        key = await self._keys.find(who.key_id)
        if key is None or not is_in_force(key, time.time()) or (key.tenant, key.subject) != who.owner:
            return False
        return Principal(subject=key.subject, scope=key.scope).may(who.scope)

    def _check(self, new: NewSharedLink) -> None:
        if not 1 <= new.expires_in_s <= self._max_s:
            raise InvalidRequest(f"a link is good for 1 to {self._max_s:g} seconds")
        if new.kind is Kind.PORT and not (new.target.isdecimal() and 1 <= int(new.target) <= 65_535):
            raise InvalidRequest("port must be a number from 1 to 65535")
        if new.kind is Kind.TERMINAL and not _TERMINAL.fullmatch(new.target):
            raise InvalidRequest("a terminal's name has 1 to 64 letters, digits, dots, dashes or underscores")
        if new.kind is Kind.FILE:
            size = len(new.target.encode("utf-8", "surrogateescape"))
            if not 0 < size <= MAX_PATH or "\0" in new.target or new.target.endswith("/"):
                raise InvalidRequest(f"path must name a file, in 1 to {MAX_PATH} bytes")


def _needed(kind: Kind, method: str) -> Scope:
    return Scope.READ if kind is Kind.FILE and method == "GET" else Scope.RUN


def _describe(claims: Claims) -> dict[str, Any]:
    return {
        "link": claims.link_id,
        "kind": str(claims.kind),
        "target": claims.target.encode("utf-8", "backslashreplace").decode(),
        "method": claims.method,
        "expires_at": claims.expires_at,
        "max_bytes": claims.max_bytes,
    }
