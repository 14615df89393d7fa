"""What each sandbox may reach now: in memory, so that a connection waits for no store. The proxy asks nothing else."""

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
    """A sandbox in memory, of which only the record counts here."""

    @property
    def sandbox(self) -> Sandbox: ...


class EgressPolicies:
    """The policies of all sandboxes of this process, with their grants and brokered secrets."""

    def __init__(self, live_sandboxes: Mapping[str, _Live], policy: Policy) -> None:
        self.on_change: list[Callable[[str], None]] = []
        """Called with the id of a sandbox that may reach something else now: what is open is looked at again."""
        self.grants: dict[str, dict[str, Grant]] = {}
        """By sandbox and id, expired ones too until they are removed."""
        self.secrets: dict[str, dict[str, Brokered]] = {}
        """By sandbox and name."""
        self._live_sandboxes = live_sandboxes
        self.policy = policy
        self.is_ours: Callable[[Address], bool] = is_ours
        """Which public addresses are this host's own."""
        self.has_upstream = False
        """Whether somebody else looks names up: of those that cannot be looked up here, there are no addresses."""
        self._refused: dict[str, tuple[int, str]] = {}
        self._failed: dict[str, tuple[int, str]] = {}

    def current(self, sandbox_id: str) -> tuple[Egress, Owner]:
        """Return what a sandbox may reach at this moment, grants included, and whose it is; nobody's reach nothing."""
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
        """Decide about a connection of a sandbox, as `egress_rules.decide` does."""
        egress, owner = self.current(sandbox_id)
        ceiling = self.policy.ceiling_of(owner.tenant).egress
        if self.has_upstream and addresses is not None and not addresses:
            return decide_by_name(egress, ceiling, host, port, method=method)
        return decide(egress, ceiling, host, port, method=method, addresses=addresses, is_ours=self.is_ours)

    def secrets_for(self, sandbox_id: str, host: str) -> tuple[Brokered, ...]:
        """Return the secrets that are put into what a sandbox says to a host."""
        kept = self.secrets.get(sandbox_id)
        if not kept:
            return ()
        try:
            name = parse_host(host).text
        except ValueError:
            return ()
        return tuple(secret for secret in kept.values() if name in secret.hosts)

    def note_refused(self, sandbox_id: str, verdict: Verdict) -> None:
        """Remember that a connection was refused: the result of what runs meanwhile says so."""
        count, _ = self._refused.get(sandbox_id, (0, ""))
        self._refused[sandbox_id] = (count + 1, verdict.why)

    def refused(self, sandbox_id: str) -> tuple[int, str]:
        """Return how many connections were refused so far, and why the last was."""
        return self._refused.get(sandbox_id, (0, ""))

    def note_failed(self, sandbox_id: str, why: str) -> None:
        """Remember that a connection that is allowed was not to be had: what fails meanwhile says so."""
        count, _ = self._failed.get(sandbox_id, (0, ""))
        self._failed[sandbox_id] = (count + 1, why)

    def failed(self, sandbox_id: str) -> tuple[int, str]:
        """Return how many connections could not be had so far, and why the last could not."""
        return self._failed.get(sandbox_id, (0, ""))

    def changed(self, sandbox_id: str) -> None:
        """Tell whoever has connections open that a sandbox may reach something else now."""
        for tell in self.on_change:
            tell(sandbox_id)

    def forget(self, sandbox_id: str) -> None:
        """Forget a sandbox that is gone, secrets and all."""
        for table in (self.grants, self.secrets, self._refused, self._failed):
            table.pop(sandbox_id, None)
