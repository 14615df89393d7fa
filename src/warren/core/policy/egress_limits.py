"""Limits of egress, as the operator sets them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class EgressLimits:
    """What the operator lets pass; 0 is no limit."""

    connections: int = 64
    """Of one sandbox at once; further ones wait."""
    everybody: int = 1024
    per_minute: int = 1200
    """New ones of one sandbox; a quarter of them may come at once."""
    bytes_per_hour: int = 100 << 30
    """Of one sandbox, both ways."""
    idle_s: float = 600.0
    """A connection over which nothing passes for so long is closed."""
    answer_s: float = 300.0
    """A server that begins no answer for so long is given up."""
