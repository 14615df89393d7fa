"""Answers about packages, as frozen values."""

from __future__ import annotations

from dataclasses import dataclass, field

from warren.sdk.values import build_all


@dataclass(frozen=True, slots=True, kw_only=True)
class Package:
    """A package that is in a sandbox."""

    name: str
    version: str


@dataclass(frozen=True, slots=True, kw_only=True)
class InstalledPackages:
    """What came of an installation."""

    ok: bool
    """Whether everything is there."""
    packages: tuple[Package, ...] = field(metadata=build_all(Package))
    """What was asked for and is there, and whatever came with it."""
    output: str
    """What the installer said."""
    execution_id: str
    hint: str | None
    """What to do, where there is something to do."""
    duration_ms: float
    timed_out: bool
