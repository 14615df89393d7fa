"""Egress policies in memory, so that a connection waits for no store. The proxy decides by nothing else."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Protocol

from warren.core.policy.egress_hosts import parse_host
from warren.core.policy.egress_rules import decide, decide_by_name
from warren.core.policy.public_addresses import is_ours
from warren.domain.egress import Egress, Verdict
from warren.domain.records import Owner

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from warren.core.policy.policy import Policy
    from warren.core.policy.public_addresses import Address
    from warren.domain.egress import Brokered, Grant
    from warren.domain.records import Sandbox

_NOBODY = Owner("", "")


class _Live(Protocol):
    """A sandbox in memory; only its record is used."""

    @property
    def sandbox(self) -> Sandbox: ...


class EgressPolicies:
    """Egress policies of all sandboxes of this process, with their grants and brokered secrets."""

    def __init__(self, live_sandboxes: Mapping[str, _Live], policy: Policy) -> None:
        self.on_change: list[Callable[[str], None]] = []
        """Called with the id of a sandbox whose policy changed, so that its open connections are decided again."""
        self.grants: dict[str, dict[str, Grant]] = {}
        """By sandbox and id; expired grants stay until they are removed."""
        self.secrets: dict[str, dict[str, Brokered]] = {}
        """By sandbox and name."""
        self._live_sandboxes = live_sandboxes
        self.policy = policy
        self.is_ours: Callable[[Address], bool] = is_ours
        """Which public addresses are this host's own."""
        self.has_upstream = False
        """Whether an upstream proxy resolves names: a name that this host cannot resolve then has no addresses."""
        self._refused: dict[str, tuple[int, str]] = {}
        self._failed: dict[str, tuple[int, str]] = {}

    def current(self, sandbox_id: str) -> tuple[Egress, Owner]:
        """Return the current policy of a sandbox with its grants, and its owner. An unknown sandbox reaches nothing."""
        live = self._live_sandboxes.get(sandbox_id)
        if live is None:
            return Egress(), _NOBODY
        own, grants = live.sandbox.egress, self.grants.get(sandbox_id)
        if grants:
            now = time.time()
            rules = tuple(one.rule for one in grants.values() if one.rule.until is None or one.rule.until > now)
            own = Egress(mode=own.mode, rules=(*own.rules, *rules))
        return own, live.sandbox.owner

    def decide(
        self,
        sandbox_id: str,
        host: str,
        port: int,
        *,
        method: str | None = None,
        addresses: Sequence[str] | None = None,
    ) -> Verdict:
        """Decide about a connection of a sandbox: see `egress_rules.decide`."""
        egress, owner = self.current(sandbox_id)
        ceiling = self.policy.ceiling_of(owner.tenant).egress
        if self.has_upstream and addresses is not None and not addresses:
            return decide_by_name(egress, ceiling, host, port, method=method)
        return decide(egress, ceiling, host, port, method=method, addresses=addresses, is_ours=self.is_ours)

    def secrets_for(self, sandbox_id: str, host: str) -> tuple[Brokered, ...]:
        """Return the secrets that a sandbox may use at a host."""
        kept = self.secrets.get(sandbox_id)
        if not kept:
            return ()
        try:
            name = parse_host(host).text
        except ValueError:
            return ()
        return tuple(secret for secret in kept.values() if name in secret.hosts)

    def note_refused(self, sandbox_id: str, verdict: Verdict) -> None:
        """Count a refused connection; results of executions that run meanwhile mention it."""
        count, _ = self._refused.get(sandbox_id, (0, ""))
        self._refused[sandbox_id] = (count + 1, verdict.why)

    def refused(self, sandbox_id: str) -> tuple[int, str]:
        """Return how many connections were refused so far, and the last reason."""
        return self._refused.get(sandbox_id, (0, ""))

    def note_failed(self, sandbox_id: str, why: str) -> None:
        """Count an allowed connection that failed; failures of executions that run meanwhile mention it."""
        count, _ = self._failed.get(sandbox_id, (0, ""))
        self._failed[sandbox_id] = (count + 1, why)

    def failed(self, sandbox_id: str) -> tuple[int, str]:
        """Return how many allowed connections failed so far, and the last reason."""
        return self._failed.get(sandbox_id, (0, ""))

    def changed(self, sandbox_id: str) -> None:
        """Report a changed policy to everything with open connections."""
        for tell in self.on_change:
            tell(sandbox_id)

    def forget(self, sandbox_id: str) -> None:
        """Drop all data of a deleted sandbox, secrets included."""
        for table in (self.grants, self.secrets, self._refused, self._failed):
            table.pop(sandbox_id, None)
