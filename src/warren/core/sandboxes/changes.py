"""Changes to a sandbox while it exists, checked against the policy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from warren.core.sandboxes.creation import choose_time
from warren.domain.errors import Conflict

if TYPE_CHECKING:
    from collections.abc import Mapping

    from warren.core.policy.policy import Policy
    from warren.domain.egress import Egress
    from warren.domain.records import Sandbox
    from warren.domain.values import Limits


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxChanges:
    """The changes of one request. None: unchanged; a time of 0: for ever."""

    metadata: Mapping[str, str] | None = None
    idle_timeout_s: float | None = None
    max_lifetime_s: float | None = None
    limits: Limits | None = None
    egress: Egress | None = None

    def choose(self, before: Sandbox, policy: Policy) -> dict[str, Any]:
        """Return the new values of the fields of a sandbox.

        Raises Conflict for another size of the disk, InvalidRequest or Forbidden for what the policy does not allow.
        """
        limits = self.limits or before.limits
        fields: dict[str, Any] = {
            "metadata": before.metadata if self.metadata is None else dict(self.metadata),
            "idle_timeout_s": choose_time(self.idle_timeout_s, before.idle_timeout_s),
            "max_lifetime_s": choose_time(self.max_lifetime_s, before.max_lifetime_s),
            "limits": limits,
        }
        if self.egress is not None:
            fields["egress"] = policy.choose_egress(before.owner.tenant, self.egress)
        if (limits.disk_bytes, limits.disk_inodes) != (before.limits.disk_bytes, before.limits.disk_inodes):
            raise Conflict("the disk of a sandbox cannot be resized while it exists; create it with the size it needs")
        if self.limits is not None:
            policy.check_limits(before.owner.tenant, limits, before.limits)
        return fields
