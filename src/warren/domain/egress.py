"""Egress as plain values: modes, rules, verdicts, grants and brokered secrets. `core/egress` enforces them."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field

PROXY_PORT = 3128
"""The egress proxy on the loopback of a sandbox: HTTP, CONNECT and SOCKS on the same port."""
PACKAGES_HOST = "packages.warren.internal"
"""Answered by the service itself: the package indexes that the operator configured, through the shared cache."""


class EgressMode(enum.StrEnum):
    """How much of the outside a sandbox may reach."""

    NONE = "none"
    PACKAGES = "packages"
    """The configured package indexes only."""
    RULES = "rules"
    """What a rule names, and nothing else."""
    OPEN = "open"
    """Everything but private, loopback, link-local and metadata addresses, which a rule has to name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EgressRule:
    """A destination that may be reached."""

    host: str
    """A name, a glob of names (`*.example.org`), an address or a network (`10.0.0.0/8`)."""
    ports: tuple[int, ...] = (80, 443)
    """Empty: all, which only the operator's ceilings may say."""
    methods: tuple[str, ...] = ()
    """Of plain HTTP, where alone a method is visible; empty: all, and TLS too."""
    until: float | None = None
    """When it ends, in seconds since the epoch: a temporary grant."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Egress:
    """The egress policy of one sandbox. Rules and grants add to what the mode allows."""

    mode: EgressMode = EgressMode.NONE
    rules: tuple[EgressRule, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Whether a connection may be made, and by which part of the policy."""

    allowed: bool
    rule: str
    """For the audit log: `mode none`, `rule *.example.org:443`, `private address`, `tenant ceiling`."""
    why: str = ""
    """When refused: one sentence for the program, which names the policy and says what to do."""
    addresses: tuple[str, ...] = ()
    """The allowed addresses of the name: the connection may go to these only."""
    is_by_name: bool = False
    """Whether its name is why it is allowed: a TLS handshake must then name the same host."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """A temporary rule of a sandbox: it ends at `rule.until`."""

    id: str
    sandbox_id: str
    rule: EgressRule
    created_at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Brokered:
    """A secret that a sandbox uses and never has: it holds a placeholder, and the egress proxy puts in the value."""

    sandbox_id: str
    name: str
    """Also the name of the variable inside that holds the placeholder."""
    placeholder: str
    hosts: tuple[str, ...]
    """Names, never globs: no other host receives the value."""
    value: str = field(repr=False)
    """Never shown, never logged, never in the sandbox."""
    created_at: float
