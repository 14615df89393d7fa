"""API keys: created, checked, listed and revoked. Only the hash of a secret is stored."""

from __future__ import annotations

import hashlib
import re
import secrets
import time
from ipaddress import ip_network
from typing import TYPE_CHECKING, Any, NoReturn

from warren.core.policy.public_addresses import is_within
from warren.domain.errors import Conflict, InvalidRequest, NotFound, StoreError, Unauthenticated
from warren.domain.records import ApiKey, Principal, Scope
from warren.domain.values import new_id

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from warren.core.audit.log import Audit
    from warren.domain.records import Caller
    from warren.stores.base import Store

_SECRET = re.compile(r"wrn_[A-Za-z0-9_-]{43}")
_NAME = re.compile(r"\w[\w .@+-]{0,63}")
_FRESH_S = 1.0
_CACHED = 4096
_NOTHING_SENT = frozenset({"missing", "no_bearer"})
_REFUSAL = "the API key is not valid here: make one with `warren keys create`"


class Keys:
    """Authenticates secrets. Revocations by other processes take effect within a second."""

    def __init__(self, store: Store, audit: Audit, clock: Callable[[], float] = time.time) -> None:
        self._store = store
        self._audit = audit
        self._clock = clock
        self._cache: dict[str, tuple[float, ApiKey]] = {}
        self._by_id: tuple[float, dict[str, ApiKey]] = (0.0, {})
        self._revocations = 0

    async def create(
        self,
        name: str,
        *,
        tenant: str = "default",
        subject: str | None = None,
        scope: Scope = Scope.RUN,
        ttl_s: float | None = None,
        networks: Sequence[str] = (),
        by: Caller | None = None,
    ) -> tuple[ApiKey, str]:
        """Create a key and return it with its secret, which is not stored. The subject defaults to the name.

        With networks, it is valid only for clients there: for a key that logs and messages of a client may show.
        Raises Conflict when a key of that name is in force, and StoreError when it cannot be audited.
        """
        subject = name if subject is None else subject
        for what, word in (("name", name), ("tenant", tenant), ("subject", subject)):
            _check_word(what, word)
        if ttl_s is not None and not 0 < ttl_s < 1e10:
            raise InvalidRequest("a key must expire some time after now")
        _check_networks(networks)
        secret = f"wrn_{secrets.token_urlsafe(32)}"
        now = self._clock()
        key = ApiKey(
            id=new_id("key"),
            name=name,
            hash=_hash(secret),
            tenant=tenant,
            subject=subject,
            scope=scope,
            created_at=now,
            expires_at=None if ttl_s is None else now + ttl_s,
            networks=tuple(networks),
        )
        await self._store.add_key(key)
        try:
            await self._audit.record(by, "key.create", **_describe(key))
        except StoreError:
            # A key that was never handed out and is not in the audit record must not work.
            await self._store.revoke_key(key.id, self._clock())
            raise
        return key, secret

    async def ensure_first_key(self) -> str | None:
        """Create an admin key if there never was any key, and return its secret."""
        if await self._store.keys():
            return None
        try:
            _, secret = await self.create("first", subject="admin", scope=Scope.ADMIN)
        except Conflict:
            return None
        return secret

    async def authenticate(self, secret: str, *, address: str = "", request_id: str = "") -> Principal:
        """Return the principal of a secret. Raises Unauthenticated without a reason."""
        if not _SECRET.fullmatch(secret):
            self.refuse("malformed", address=address, request_id=request_id)
        key = await self._find(_hash(secret))
        if key is None:
            self.refuse("unknown", address=address, request_id=request_id)
        if not is_in_force(key, self._clock()):
            reason = "expired" if key.revoked_at is None else "revoked"
            self.refuse(reason, address=address, request_id=request_id, who=_principal(key))
        if key.networks and not is_within(address, key.networks):
            self.refuse("network", address=address, request_id=request_id, who=_principal(key))
        return _principal(key)

    def refuse(
        self,
        reason: str,
        *,
        address: str = "",
        request_id: str = "",
        who: Principal | None = None,
        message: str = _REFUSAL,
    ) -> NoReturn:
        """Audit the reason for a refusal, and raise Unauthenticated, which says less."""
        self._audit.refuse(reason, address=address, request_id=request_id, who=who)
        raise Unauthenticated(message, is_missing=reason in _NOTHING_SENT)

    async def find(self, key_id: str) -> ApiKey | None:
        """Return a key, in force or not. Changes by other processes are seen within a second, our own at once."""
        # WHY also for a missing key: it may be newer than the cache.
        while (now := time.monotonic()) >= self._by_id[0] or key_id not in self._by_id[1]:
            revocations = self._revocations
            found = {key.id: key for key in await self._store.keys()}
            # A read that overlaps a revocation may miss it.
            if revocations == self._revocations:
                self._by_id = (now + _FRESH_S, found)
                return found.get(key_id)
        return self._by_id[1][key_id]

    async def list(self) -> tuple[ApiKey, ...]:
        """Return all keys, oldest first, in force or not."""
        return await self._store.keys()

    async def revoke(self, id_or_name: str, *, by: Caller | None = None) -> ApiKey:
        """Revoke the key of that id, or the one in force of that name. Raises NotFound."""
        now = self._clock()
        found = [key for key in await self._store.keys() if id_or_name in {key.id, key.name}]
        key = next((key for key in found if is_in_force(key, now)), None)
        if key is None or not await self._store.revoke_key(key.id, now):
            why = "it was revoked already, or has expired" if found else "`warren keys list` shows them"
            raise NotFound(f"there is no key {id_or_name!r} to revoke: {why}")
        self._cache.pop(key.hash, None)
        self._by_id = (0.0, {})
        self._revocations += 1
        await self._audit.record(by, "key.revoke", **_describe(key))
        return key

    async def _find(self, digest: str) -> ApiKey | None:
        now = time.monotonic()
        cached = self._cache.get(digest)
        if cached is not None and now < cached[0]:
            return cached[1]
        key = await self._store.key(digest)
        if key is None:
            self._cache.pop(digest, None)
            return None
        if len(self._cache) >= _CACHED:
            del self._cache[next(iter(self._cache))]
        self._cache[digest] = (now + _FRESH_S, key)
        return key


def is_in_force(key: ApiKey, now: float) -> bool:
    """Whether a key is neither revoked nor expired."""
    return key.revoked_at is None and (key.expires_at is None or now < key.expires_at)


def _principal(key: ApiKey) -> Principal:
    return Principal(subject=key.subject, tenant=key.tenant, scope=key.scope, key_id=key.id, expires_at=key.expires_at)


def _hash(secret: str) -> str:
    # Hashes are compared, never secrets: the timing of a hash lookup reveals nothing about the secret.
    return hashlib.sha256(secret.encode()).hexdigest()


def _describe(key: ApiKey) -> dict[str, Any]:
    return {
        "key": key.id,
        "name": key.name,
        "for_tenant": key.tenant,
        "for_subject": key.subject,
        "scope": str(key.scope),
        "expires_at": key.expires_at,
        **({"networks": list(key.networks)} if key.networks else {}),
    }


def _check_networks(networks: Sequence[str]) -> None:
    for network in networks:
        try:
            ip_network(network)
        except ValueError:
            why = f"a key's networks are addresses or networks, such as 10.0.0.7 or 10.0.0.0/8, not {network[:80]!r}"
            raise InvalidRequest(why) from None


def _check_word(what: str, word: str) -> None:
    if not _NAME.fullmatch(word) or word != word.strip():
        raise InvalidRequest(
            f"a key's {what} has 1 to 64 letters, digits, spaces or .@+-_ and begins with a letter, not {word[:80]!r}"
        )
