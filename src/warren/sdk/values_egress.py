"""Answers about egress, as frozen values."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime  # noqa: TC003 - a field's type, read where the page about the library is made

from warren.sdk.values import TIME, TUPLE, build_all


@dataclass(frozen=True, slots=True, kw_only=True)
class EgressRule:
    """Something that a sandbox may reach."""

    host: str
    """A name, a glob of names, an address or a network."""
    ports: tuple[int, ...] = field(default=(80, 443), metadata=TUPLE)
    methods: tuple[str, ...] = field(default=(), metadata=TUPLE)
    """Of plain HTTP; empty is all, and TLS too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Egress:
    """What a sandbox may reach, besides what it was granted for a while."""

    mode: str = "none"
    """none, packages, rules or open."""
    rules: tuple[EgressRule, ...] = field(default=(), metadata=build_all(EgressRule))


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """Something that a sandbox may reach until its time is over."""

    id: str
    host: str
    ports: tuple[int, ...] = field(metadata=TUPLE)
    methods: tuple[str, ...] = field(metadata=TUPLE)
    created_at: datetime = field(metadata=TIME)
    expires_at: datetime = field(metadata=TIME)


@dataclass(frozen=True, slots=True, kw_only=True)
class Secret:
    """A secret that a sandbox may use and never has, without its value."""

    name: str
    """Also of the variable inside that holds the placeholder."""
    placeholder: str
    """What the sandbox has in its place: write it wherever the value would go."""
    hosts: tuple[str, ...] = field(metadata=TUPLE)
    created_at: datetime = field(metadata=TIME)
