"""otari's fields of `/health`: how many sessions there are, and how many there may be."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from warren.domain.lifecycle import ACTIVE
from warren.gateway.dialects.dialect import HealthReport

if TYPE_CHECKING:
    from collections.abc import Mapping

DIALECT = {"dialect": "otari"}
"""The label of this dialect's sandboxes."""


class OtariReport(HealthReport):
    """The report of one service."""

    def health(self) -> Mapping[str, Any]:
        """Count the sessions as they are now, from memory. Any one of the limits refuses: the smallest is the first."""
        live = self.service.sandboxes.transitions.live_sandboxes.values()
        ours = DIALECT["dialect"]
        count = sum(each.sandbox.metadata.get("dialect") == ours and each.sandbox.status in ACTIVE for each in live)
        policy = self.service.policy
        limits = [limit for held in (policy.own, policy.everybody) for limit in (held.active, held.sandboxes) if limit]
        return {"session_count": count, "max_sessions": min(limits, default=0)}
