"""Egress rules: decides whether a sandbox may reach a destination. Pure functions; ADR 22 has the reasons.

1. A connection needs the permission of both the sandbox's policy and its tenant's ceiling. A ceiling is a policy and is
   evaluated in the same way.
2. A name is resolved only if a rule or the mode could allow it: a name that is refused is never sent to a resolver.
3. An address that is not public, or belongs to this host, must be named: by itself, by a network without public
   addresses, or by the exact name of the host. Globs and the mode `open` never reach one.
4. A refusal is one sentence that names the policy, and never an internal address.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from warren.core.policy.egress_hosts import Host, is_public_name, parse_host, parse_pattern
from warren.core.policy.public_addresses import is_inside, is_public, parse_address
from warren.domain.egress import PACKAGES_HOST, Egress, EgressMode, EgressRule, Verdict
from warren.domain.errors import Forbidden, InvalidRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from warren.core.policy.public_addresses import Address

T = TypeVar("T")

MAX_RULES = 100
MAX_PORTS = 32
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
_INDEXED = frozenset({EgressMode.PACKAGES, EgressMode.OPEN})
"""Modes that include the package indexes."""
_CEILING = "tenant ceiling"


class _Asked(NamedTuple):
    host: Host
    port: int
    method: str | None


class _Word(NamedTuple):
    """What allows a destination in a policy, and whether that depends on the name."""

    text: str
    is_by_name: bool


def check_egress(egress: Egress) -> Egress:
    """Return a policy in canonical spelling. Raises InvalidRequest, which names the rule."""
    if egress.rules and egress.mode is EgressMode.NONE:
        raise InvalidRequest("egress has rules and the mode none: with rules the mode is rules, packages or open")
    if len(egress.rules) > MAX_RULES:
        raise InvalidRequest(f"egress has {len(egress.rules)} rules, and may have {MAX_RULES}: use globs and networks")
    return Egress(mode=egress.mode, rules=tuple(map(check_rule, egress.rules)))


def check_rule(rule: EgressRule) -> EgressRule:
    """Return a rule in canonical spelling. Raises InvalidRequest."""
    try:
        host = parse_pattern(rule.host).text
    except ValueError as error:
        raise InvalidRequest(f"a rule cannot have the host {rule.host[:100]!r}: {error}") from None
    if not 1 <= len(rule.ports) <= MAX_PORTS or not all(1 <= port <= 65_535 for port in rule.ports):
        raise InvalidRequest(f"the rule for {host} must have 1 to {MAX_PORTS} ports between 1 and 65535")
    methods = tuple(method.upper() for method in rule.methods)
    if unknown := set(methods) - set(METHODS):
        raise InvalidRequest(
            f"the rule for {host} has the method {min(unknown)[:20]!r}: choose from {', '.join(METHODS)}"
        )
    return EgressRule(host=host, ports=_unique(rule.ports), methods=_unique(methods), until=rule.until)


def check_within(egress: Egress, ceiling: Egress, tenant: str) -> None:
    """Raise Forbidden for a policy with a part that its ceiling never allows."""
    if egress.mode is not EgressMode.RULES and _rank(egress.mode) > _rank(ceiling.mode):
        raise Forbidden(
            f"sandboxes of tenant {tenant!r} may have the egress {ceiling.mode} at most, and {egress.mode} was asked "
            f"for: ask the operator to change tenant.egress"
        )
    for rule in egress.rules:
        if not _fits(rule, ceiling):
            raise Forbidden(
                f"sandboxes of tenant {tenant!r} may not reach {rule.host}: ask the operator to list it in "
                f"tenant.egress_hosts"
            )


def lower_to(egress: Egress, ceiling: Egress) -> Egress:
    """Return a policy limited to a ceiling, for policies of the operator."""
    mode = egress.mode if _rank(egress.mode) <= _rank(ceiling.mode) else ceiling.mode
    return Egress(mode=mode, rules=tuple(rule for rule in egress.rules if _fits(rule, ceiling)))


def describe_egress(egress: Egress) -> dict[str, Any]:
    """Describe a policy for the audit record."""
    if not egress.rules:
        return {"egress": egress.mode.value}
    return {"egress": egress.mode.value, "rules": [describe_rule(rule) for rule in egress.rules]}


def describe_rule(rule: EgressRule) -> str:
    """Describe a rule in one line."""
    methods = f"{','.join(rule.methods)} " if rule.methods else ""
    return f"{methods}{rule.host}:{','.join(map(str, rule.ports)) or '*'}"


def decide(
    egress: Egress,
    ceiling: Egress,
    host: str,
    port: int,
    *,
    method: str | None = None,
    addresses: Sequence[str] | None = None,
    is_ours: Callable[[Address], bool] | None = None,
) -> Verdict:
    """Decide about a connection: before its name is resolved, without `addresses`, and again with the addresses.

    `method` is that of plain HTTP; None for protocols that hide it. Before the name is resolved, allowed means that it
    may be resolved. `is_ours` tells which public addresses belong to this host.
    """
    try:
        asked = _Asked(parse_host(host), port, method)
        found = None if addresses is None else tuple(map(parse_address, addresses))
    except ValueError:
        return _no("no host", f"{host[:100]!r} is not a valid host: check it.")
    if asked.host.text == PACKAGES_HOST:
        return _decide_inner(egress, ceiling)
    if asked.host.address is not None:
        found = (asked.host.address,)
    if found is None:
        return _decide_name(egress, ceiling, asked)
    outside = [(each, is_public(each) and not (is_ours and is_ours(each))) for each in found]
    return _decide_address(egress, ceiling, asked, outside)


def decide_by_name(egress: Egress, ceiling: Egress, host: str, port: int, *, method: str | None = None) -> Verdict:
    """Decide about a host that only the upstream proxy can resolve; networks do not apply.

    A name that is not public must be in a rule as it is: `open` and globs cover public names.
    """
    is_public = is_public_name(host)

    def narrow(policy: Egress) -> Egress:
        patterns = [(rule, parse_pattern(rule.host)) for rule in policy.rules]
        rules = tuple(rule for rule, each in patterns if each.name or (is_public and each.glob))
        return Egress(
            mode=policy.mode if is_public or policy.mode is not EgressMode.OPEN else EgressMode.RULES, rules=rules
        )

    return decide(narrow(egress), narrow(ceiling), host, port, method=method)


def _decide_inner(egress: Egress, ceiling: Egress) -> Verdict:
    def reaches(policy: Egress) -> bool:
        return policy.mode in _INDEXED or any(rule.host == PACKAGES_HOST for rule in policy.rules)

    if not reaches(egress):
        return _refuse(egress, f"{PACKAGES_HOST}, the package index,", remedy="set its egress to packages")
    if not reaches(ceiling):
        return _refuse_by_ceiling("the package index")
    return Verdict(allowed=True, rule=f"mode {egress.mode}")


def _decide_name(egress: Egress, ceiling: Egress, asked: _Asked) -> Verdict:
    own, most = _may(egress, asked), _may(ceiling, asked)
    if own is None:
        return _refuse(egress, f"{asked.host.text}:{asked.port}", asked)
    if most is None:
        return _refuse_by_ceiling(asked.host.text)
    return Verdict(allowed=True, rule=own.text, is_by_name=own.is_by_name or most.is_by_name)


def _decide_address(egress: Egress, ceiling: Egress, asked: _Asked, found: Iterable[tuple[Address, bool]]) -> Verdict:
    usable: list[str] = []
    word: _Word | None = None
    is_own = False
    for address, is_outside in found:
        own, most = (_allows(policy, asked, address, is_outside=is_outside) for policy in (egress, ceiling))
        is_own = is_own or own is not None
        if own is None or most is None:
            continue
        usable.append(str(address))
        word = _Word((word or own).text, own.is_by_name or most.is_by_name or (word is not None and word.is_by_name))
    if word is not None:
        return Verdict(allowed=True, rule=word.text, addresses=tuple(usable), is_by_name=word.is_by_name)
    if is_own:
        return _refuse_by_ceiling(asked.host.text)
    could = _may(egress, asked)
    if could is not None and (could.is_by_name or egress.mode is EgressMode.OPEN):
        return _no(
            "private address",
            f"{asked.host.text} leads to an address that is not public, or is this host's own: name the address, "
            "or the host itself and no glob, in a rule of the sandbox's egress.",
        )
    return _refuse(egress, f"{asked.host.text}:{asked.port}", asked)


def _may(policy: Egress, asked: _Asked) -> _Word | None:
    """Return what in a policy could allow a host, before its addresses are known."""
    if policy.mode is EgressMode.OPEN:
        return _Word("mode open", is_by_name=False)
    network: _Word | None = None
    for rule in policy.rules:
        if not _is_for(rule, asked):
            continue
        pattern = parse_pattern(rule.host)
        if pattern.matches_name(asked.host):
            return _Word(_name_rule(rule, asked.port), is_by_name=True)
        if pattern.network is not None:
            network = network or _Word(_name_rule(rule, asked.port), is_by_name=False)
    return network


def _allows(policy: Egress, asked: _Asked, address: Address, *, is_outside: bool) -> _Word | None:
    """Return what in a policy allows a connection to an address, the least demanding first."""
    if policy.mode is EgressMode.OPEN and is_outside:
        return _Word("mode open", is_by_name=False)
    by_name: _Word | None = None
    for rule in policy.rules:
        pattern = parse_pattern(rule.host)
        if _is_for(rule, asked) and pattern.opens(asked.host, address, is_outside=is_outside):
            word = _Word(_name_rule(rule, asked.port), is_by_name=pattern.network is None)
            if not word.is_by_name:
                return word
            by_name = by_name or word
    return by_name


def _is_for(rule: EgressRule, asked: _Asked) -> bool:
    return (not rule.ports or asked.port in rule.ports) and (not rule.methods or asked.method in rule.methods)


def _fits(rule: EgressRule, ceiling: Egress) -> bool:
    """Whether a ceiling can ever allow a rule."""
    pattern = parse_pattern(rule.host)
    if ceiling.mode is EgressMode.OPEN and (pattern.network is None or not is_inside(pattern.network)):
        return True
    if rule.host == PACKAGES_HOST and ceiling.mode in _INDEXED:
        return True
    return any(_covers(other.host, rule.host) for other in ceiling.rules)


def _covers(most: str, asked: str) -> bool:
    """Whether two patterns can match a common destination."""
    ceiling, rule = parse_pattern(most), parse_pattern(asked)
    if ceiling.network is None:
        if rule.name is not None:
            return ceiling.matches_name(Host(rule.name))
        # One common name is enough: each connection is checked against the ceiling again.
        return rule.glob is not None and ceiling.matches_name(Host(asked.replace("*", "x")))
    if rule.network is None:
        # The addresses of the name are known only when it is resolved.
        return True
    return rule.network.version == ceiling.network.version and rule.network.overlaps(ceiling.network)


def _no(rule: str, why: str) -> Verdict:
    return Verdict(allowed=False, rule=rule, why=why)


def _refuse(
    egress: Egress, what: str, asked: _Asked | None = None, remedy: str = "change its egress, or grant this for a while"
) -> Verdict:
    """Refuse by the sandbox's own policy."""
    rule = f"mode {egress.mode}"
    if asked is not None and asked.method is None and _may_plainly(egress, asked):
        return _no(
            rule,
            f"{what} is in a rule with methods, which are seen in plain HTTP only: call it with http://, or "
            "change the rule.",
        )
    has = {
        EgressMode.NONE: "this sandbox reaches no host (its egress is none)",
        EgressMode.PACKAGES: "this sandbox reaches the package indexes only (its egress is packages)",
        EgressMode.RULES: "no rule of this sandbox's egress names it",
        EgressMode.OPEN: "this sandbox reaches public hosts and what a rule names (its egress is open)",
    }[egress.mode]
    return _no(rule, f"{what} may not be reached: {has}. The owner of the sandbox can {remedy}.")


def _may_plainly(egress: Egress, asked: _Asked) -> bool:
    return any(_may(egress, asked._replace(method=method)) is not None for method in METHODS)


def _refuse_by_ceiling(what: str) -> Verdict:
    return _no(
        _CEILING,
        f"{what} may not be reached: the operator does not let sandboxes of this tenant do so, and can change that "
        "with tenant.egress and tenant.egress_hosts.",
    )


def _name_rule(rule: EgressRule, port: int) -> str:
    word = "rule" if rule.until is None else "grant"
    return f"{word} {rule.host}:{port}"


def _rank(mode: EgressMode) -> int:
    # A list of rules does not compare with the other modes.
    return {EgressMode.NONE: 0, EgressMode.RULES: 0, EgressMode.PACKAGES: 1, EgressMode.OPEN: 2}[mode]


def _unique(values: Sequence[T]) -> tuple[T, ...]:
    return tuple(dict.fromkeys(values))
