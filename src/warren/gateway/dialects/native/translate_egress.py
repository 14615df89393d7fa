"""Egress between the native API and the domain. Pure: values in, values out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from warren.domain.egress import Egress, EgressMode, EgressRule

if TYPE_CHECKING:
    from warren.gateway.dialects.native.schemas_egress import EgressBody, EgressRuleBody


def parse_egress(asked: EgressBody | None, network_enabled: bool | None = None) -> Egress | None:
    """Build what a sandbox shall be able to reach; None is as the operator decided."""
    if asked is None:
        modes = {True: EgressMode.OPEN, False: EgressMode.NONE}
        return None if network_enabled is None else Egress(mode=modes[network_enabled])
    return Egress(mode=EgressMode(asked.mode), rules=tuple(map(parse_rule, asked.rules)))


def parse_rule(rule: EgressRuleBody) -> EgressRule:
    """Build a rule."""
    return EgressRule(host=rule.host, ports=tuple(rule.ports), methods=tuple(rule.methods))


def has_network(egress: Egress) -> bool:
    """Whether a sandbox may reach anything."""
    return egress.mode in {EgressMode.PACKAGES, EgressMode.OPEN} or bool(egress.rules)
