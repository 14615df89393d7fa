"""Internal hosts: names that the egress proxy answers itself, such as the package index."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from warren.domain.records import Owner


@dataclass(frozen=True, slots=True, kw_only=True)
class InnerRequest:
    """A request of a program to an internal host. Every field is hostile until parsed."""

    sandbox_id: str
    owner: Owner
    method: str
    target: str
    """Path and query, as sent."""
    headers: Mapping[str, str] = field(default_factory=dict)
    """By lower-case name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InnerAnswer:
    """The response of an internal host."""

    status: int
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes | AsyncIterator[bytes] = b""
    """The sender closes an iterator, also when the program disconnects."""


class InnerFailed(Exception):
    """A response body that breaks off; the sentence is for the program."""

    outcome = "broken"
    """The outcome in the audit entry of the connection."""


InnerHost = Callable[[InnerRequest], Awaitable[InnerAnswer]]
