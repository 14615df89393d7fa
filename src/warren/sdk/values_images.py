"""Answers about images, as frozen values."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime  # noqa: TC003 - a field's type, read where the page about the library is made

from warren.sdk.values import TIME, TUPLE, build_one


@dataclass(frozen=True, slots=True, kw_only=True)
class Build:
    """How far the last build of an image is, or how it ended."""

    phase: str
    """waiting, system, resolving, downloading, installing, node, fonts, compiling, finishing or done."""
    detail: str
    done: int
    total: int
    """0 when it is not known how much there is to do."""
    started_at: datetime = field(metadata=TIME)
    finished_at: datetime | None = field(metadata=TIME)
    error: str | None
    """Why it failed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """An image that sandboxes are made from."""

    name: str
    description: str
    aliases: tuple[str, ...] = field(metadata=TUPLE)
    packages: tuple[str, ...] = field(metadata=TUPLE)
    digest: str
    state: str
    """built, building, not_built, or stale: only an earlier build is there."""
    is_default: bool
    size_bytes: int
    built_at: datetime | None = field(metadata=TIME)
    preload: tuple[str, ...] = field(metadata=TUPLE)
    stale: tuple[str, ...] = field(metadata=TUPLE)
    """Digests of earlier builds that are still there."""
    build: Build | None = field(metadata=build_one(Build))
