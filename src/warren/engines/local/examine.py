"""Examines this host: each layer of isolation tried in a control group like the keeper's own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from warren.engines.local import probe

if TYPE_CHECKING:
    from collections.abc import Iterable

    from warren.engines.local.probe import Layer


@dataclass(frozen=True, slots=True)
class Examination:
    """What was found on this host."""

    layers: tuple[Layer, ...]
    place: str
    """Where control groups are made, in words: `cgroup v2, /sys/fs/cgroup/warren.slice/…, made by systemd`."""


def examine(*, optional: Iterable[str] = ()) -> Examination:
    """Try every layer as the keeper would. Raises RuntimeError for an optional layer that does not exist."""
    return Examination(tuple(probe.probe(optional=optional)), "")
