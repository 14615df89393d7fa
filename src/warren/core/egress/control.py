"""Egress grants and brokered secrets: the use cases of their owners.

The egress policy of a sandbox is part of its record (`core/sandboxes/sandboxes.py`); `core/policy/egress_rules.py`
decides by it.
"""

from __future__ import annotations

import logging
import re
import secrets
import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import anyio

from warren.core.policy.egress_hosts import parse_pattern
from warren.core.policy.egress_rules import check_rule
from warren.core.sandboxes.creation import check_env
from warren.domain.egress import Brokered, EgressRule, Grant
from warren.domain.errors import Conflict, Error, InvalidRequest, NotFound, QuotaExceeded
from warren.domain.lifecycle import Status
from warren.domain.records import Scope
from warren.domain.values import new_id

if TYPE_CHECKING:
    from warren.core.audit.log import Audit
    from warren.core.egress.policy_table import EgressPolicies
    from warren.core.sandboxes.live import LiveSandbox
    from warren.core.sandboxes.sandboxes import Sandboxes
    from warren.domain.records import Caller
    from warren.stores.base import Store

MAX_GRANTS = 100
MAX_GRANT_S = 30 * 86_400.0
MAX_SECRETS = 50
MAX_SECRET_HOSTS = 32
MAX_VALUE = 8192
_LOOK_S = 60.0
"""The longest wait between two checks for expired grants: the system clock may be set."""
_PLACEHOLDER = "wsec_"
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
# WHY 8 characters: values are removed from every response, and a shorter one would match unrelated text.
_VALUE = re.compile(r"[\x21-\x7e][\x20-\x7e]{6,}[\x21-\x7e]")

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class NewGrant:
    """A request to let a sandbox reach a destination for a limited time."""

    rule: EgressRule
    expires_in_s: float = 3600.0

    def __post_init__(self) -> None:
        if not 1 <= self.expires_in_s <= MAX_GRANT_S:
            raise InvalidRequest(f"a grant lasts 1 to {MAX_GRANT_S:.0f} seconds: use a rule for longer")


@dataclass(frozen=True, slots=True, kw_only=True)
class NewSecret:
    """A request to let a sandbox use a secret at these hosts and no others."""

    name: str
    value: str = field(repr=False)
    hosts: tuple[str, ...]

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise InvalidRequest("the name of a secret must be a variable name: letters, digits and underscores")
        if len(self.value) > MAX_VALUE or not _VALUE.fullmatch(self.value):
            raise InvalidRequest(f"the value of a secret is 8 to {MAX_VALUE} printable ASCII characters, in one line")
        if not 1 <= len(self.hosts) <= MAX_SECRET_HOSTS:
            raise InvalidRequest(f"a secret needs 1 to {MAX_SECRET_HOSTS} hosts that it may be sent to")


class EgressControl:
    """Grants and secrets of sandboxes."""

    def __init__(self, sandboxes: Sandboxes, store: Store, audit: Audit, policies: EgressPolicies) -> None:
        self.policies = policies
        self._sandboxes = sandboxes
        self._store = store
        self._audit = audit
        self._policy = policies.policy
        self._granted = anyio.Event()
        sandboxes.transitions.on_forget.append(policies.forget)
        sandboxes.on_egress = policies.changed

    async def load(self) -> None:
        """Load the grants and secrets of the store, at start-up."""
        for grant in await self._store.grants():
            self.policies.grants.setdefault(grant.sandbox_id, {})[grant.id] = grant
        for secret in await self._store.secrets():
            self.policies.secrets.setdefault(secret.sandbox_id, {})[secret.name] = secret

    async def run(self) -> None:
        """Remove expired grants: new connections are refused, and open ones are cut."""
        while True:
            self._granted = anyio.Event()
            await self._expire()
            untils = [grant.rule.until or 0.0 for kept in self.policies.grants.values() for grant in kept.values()]
            wait_s = min(_LOOK_S, max(0.0, min(untils) - time.time())) if untils else _LOOK_S
            with anyio.move_on_after(wait_s):
                await self._granted.wait()

    async def grant(self, caller: Caller, sandbox_id: str, new: NewGrant) -> Grant:
        """Let a sandbox reach a destination for a limited time. Raises InvalidRequest, Forbidden and QuotaExceeded."""
        async with (
            self._sandboxes.audited(caller, "egress.grant", sandbox_id=sandbox_id, host=new.rule.host) as noted,
            self._sandboxes.hold(caller, sandbox_id, Scope.RUN) as live,
        ):
            now = time.time()
            rule = replace(check_rule(new.rule), until=now + new.expires_in_s)
            self._policy.check_rules(live.sandbox.owner.tenant, (rule,))
            kept = self.policies.grants.setdefault(sandbox_id, {})
            if sum((one.rule.until or 0.0) > now for one in kept.values()) >= MAX_GRANTS:
                raise QuotaExceeded(f"a sandbox may have {MAX_GRANTS} grants at once: revoke one, or set rules")
            grant = Grant(id=new_id("grt"), sandbox_id=sandbox_id, rule=rule, created_at=now)
            noted.update(grant=grant.id, host=rule.host, ports=rule.ports, methods=rule.methods, until=rule.until)
            await self._store.keep_grant(grant)
            kept[grant.id] = grant
            self._granted.set()
            return grant

    async def grants(self, caller: Caller, sandbox_id: str) -> tuple[Grant, ...]:
        """List the grants of a sandbox that have not expired, oldest first."""
        await self._sandboxes.get(caller, sandbox_id)
        now = time.time()
        kept = self.policies.grants.get(sandbox_id, {}).values()
        return tuple(grant for grant in kept if (grant.rule.until or 0.0) > now)

    async def revoke(self, caller: Caller, sandbox_id: str, grant_id: str) -> None:
        """Revoke a grant; connections that no other rule allows are cut. Raises NotFound."""
        async with (
            self._sandboxes.audited(caller, "egress.revoke", sandbox_id=sandbox_id, grant=grant_id[:64]) as noted,
            self._sandboxes.hold(caller, sandbox_id, Scope.RUN),
        ):
            grant = self.policies.grants.get(sandbox_id, {}).get(grant_id)
            if grant is None:
                raise NotFound(f"sandbox {sandbox_id} has no grant {grant_id[:64]!r}: it may have expired")
            noted["host"] = grant.rule.host
            await self._store.remove_grant(grant_id)
            self.policies.grants[sandbox_id].pop(grant_id, None)
            self.policies.changed(sandbox_id)

    async def create_secret(self, caller: Caller, sandbox_id: str, new: NewSecret) -> Brokered:
        """Create or replace a secret of a sandbox. A replaced secret keeps its placeholder.

        Commands and kernels that start from now on have the placeholder in a variable of that name. Raises
        InvalidRequest, Forbidden, QuotaExceeded, and Conflict where the sandbox has another variable of that name.
        """
        async with (
            self._sandboxes.audited(caller, "secret.create", sandbox_id=sandbox_id, name=new.name) as noted,
            self._sandboxes.hold(caller, sandbox_id, Scope.RUN) as live,
        ):
            hosts = self._check_hosts(live.sandbox.owner.tenant, new.hosts)
            noted["hosts"] = hosts
            kept = self.policies.secrets.setdefault(sandbox_id, {})
            before = kept.get(new.name)
            if before is None and len(kept) >= MAX_SECRETS:
                raise QuotaExceeded(f"a sandbox may have {MAX_SECRETS} secrets: delete one")
            there = live.sandbox.env.get(new.name, _PLACEHOLDER)
            if not there.startswith(_PLACEHOLDER):
                raise Conflict(f"the sandbox has a variable {new.name} already: choose another name for the secret")
            secret = Brokered(
                sandbox_id=sandbox_id,
                name=new.name,
                placeholder=_PLACEHOLDER + secrets.token_hex(16) if before is None else before.placeholder,
                hosts=hosts,
                value=new.value,
                created_at=time.time(),
            )
            env = {**live.sandbox.env, new.name: secret.placeholder}
            check_env(env)
            await self._store.keep_secret(secret)
            kept[new.name] = secret
            await self._set_env(live, env, {new.name: secret.placeholder})
            return secret

    async def secrets(self, caller: Caller, sandbox_id: str) -> tuple[Brokered, ...]:
        """List the secrets of a sandbox. Values are never shown."""
        await self._sandboxes.get(caller, sandbox_id)
        return tuple(self.policies.secrets.get(sandbox_id, {}).values())

    async def delete_secret(self, caller: Caller, sandbox_id: str, name: str) -> None:
        """Delete a secret; its placeholder is then plain text. Raises NotFound."""
        async with (
            self._sandboxes.audited(caller, "secret.delete", sandbox_id=sandbox_id, name=name[:128]),
            self._sandboxes.hold(caller, sandbox_id, Scope.RUN) as live,
        ):
            if name not in self.policies.secrets.get(sandbox_id, {}):
                raise NotFound(f"sandbox {sandbox_id} has no secret {name[:128]!r}")
            await self._store.remove_secret(sandbox_id, name)
            del self.policies.secrets[sandbox_id][name]
            env = {key: value for key, value in live.sandbox.env.items() if key != name}
            # The environment of an agent only grows: an empty value stands for no variable until the next start.
            await self._set_env(live, env, {name: ""})

    def _check_hosts(self, tenant: str, hosts: tuple[str, ...]) -> tuple[str, ...]:
        checked: list[str] = []
        for host in hosts:
            try:
                pattern = parse_pattern(host)
            except ValueError as error:
                raise InvalidRequest(f"a secret cannot have the host {host[:100]!r}: {error}") from None
            if pattern.name is None:
                raise InvalidRequest(f"a secret is for hosts by their exact names: write out {host[:100]!r}")
            checked.append(pattern.name)
        self._policy.check_rules(tenant, tuple(EgressRule(host=host) for host in checked))
        return tuple(dict.fromkeys(checked))

    async def _set_env(self, live: LiveSandbox, env: dict[str, str], change: dict[str, str]) -> None:
        transitions = self._sandboxes.transitions
        await transitions.write(live, live.sandbox.status, env=env)
        if live.sandbox.status is Status.RUNNING:
            if not live.is_ready:
                await transitions.reach(live)
            await live.agent.configure(env=change)

    async def _expire(self) -> None:
        now = time.time()
        over = [
            grant
            for kept in self.policies.grants.values()
            for grant in kept.values()
            if (grant.rule.until or 0.0) <= now
        ]
        for grant in over:
            # Each removal awaits the store: meanwhile a sandbox may be deleted, or an owner may revoke its grant.
            if self.policies.grants.get(grant.sandbox_id, {}).pop(grant.id, None) is None:
                continue
            self._audit.note(None, "egress.expire", sandbox_id=grant.sandbox_id, grant=grant.id, host=grant.rule.host)
            self.policies.changed(grant.sandbox_id)
            try:
                await self._store.remove_grant(grant.id)
            except Error as error:
                # The grant opens nothing any more; the next start finds it in the store, expired.
                _log.warning("egress.grant_remove_failed", extra={"grant": grant.id, "reason": error.code})
