"""Hosts that the way out answers itself, without a connection: the package index is one."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from warren.domain.records import Owner


@dataclass(frozen=True, slots=True, kw_only=True)
class InnerRequest:
    """What a program asked of such a host. Every word of it is hostile until parsed."""

    sandbox_id: str
    owner: Owner
    method: str
    target: str
    """Path and query, as sent."""
    headers: Mapping[str, str] = field(default_factory=dict)
    """By lower-case name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InnerAnswer:
    """What it is told."""

    status: int
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes | AsyncIterator[bytes] = b""
    """An iterator is closed by whoever sends it, also when the program goes away."""


class InnerFailed(Exception):
    """A body that cannot be sent to its end; the sentence is for the program."""

    outcome = "broken"
    """What is written down of the connection."""


InnerHost = Callable[[InnerRequest], Awaitable[InnerAnswer]]
