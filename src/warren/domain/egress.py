"""The nouns of the way out: what a sandbox may reach, as plain values. `core/egress*.py` holds everybody to them."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field

PROXY_PORT = 3128
"""Where programs inside find the way out, on their own loopback: HTTP, CONNECT and SOCKS on the same port."""
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
    """Something that may be reached."""

    host: str
    """A name, a glob of names (`*.example.org`), an address or a network (`10.0.0.0/8`)."""
    ports: tuple[int, ...] = (80, 443)
    """Empty is all of them: only the operator's ceilings are so."""
    methods: tuple[str, ...] = ()
    """Of plain HTTP, the only kind in which a method can be seen; empty is all, and TLS too."""
    until: float | None = None
    """When it ends, in seconds since the epoch: a temporary grant."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Egress:
    """What one sandbox may reach. Rules and grants add to whatever the mode allows."""

    mode: EgressMode = EgressMode.NONE
    rules: tuple[EgressRule, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Whether a connection may be made, and by which word of the policy."""

    allowed: bool
    rule: str
    """For the audit record: `mode none`, `rule *.example.org:443`, `private address`, `tenant ceiling`."""
    why: str = ""
    """When refused: one sentence for the program, which names the policy and says what to do."""
    addresses: tuple[str, ...] = ()
    """Of those that the name was looked up to: where the connection may go, and nowhere else."""
    is_by_name: bool = False
    """Whether its name is why it is allowed: what is said over TLS must then be for that very name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """A rule that a sandbox has for a while: `rule.until` says until when."""

    id: str
    sandbox_id: str
    rule: EgressRule
    created_at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Brokered:
    """A secret that a sandbox may use and never has: it holds the placeholder, and the way out puts in the value."""

    sandbox_id: str
    name: str
    """Also of the variable inside that holds the placeholder."""
    placeholder: str
    hosts: tuple[str, ...]
    """Names, never globs: nobody else is told the value."""
    value: str = field(repr=False)
    """Never shown, never logged, never in the sandbox."""
    created_at: float
