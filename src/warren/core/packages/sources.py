"""Where packages come from: the indexes that the operator chose, as plain values."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from warren.domain.values import GIB

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """One index, registry, or folder of files."""

    url: str
    """Of http, https or file. An index ends with a slash."""
    is_links: bool = False
    """A folder, or a page, that has the files of all projects: what pip calls find-links."""
    authorization: str = ""
    """The header's value, for this very origin and no other."""

    @property
    def origin(self) -> tuple[str, str, int | None]:
        """Scheme, host and port."""
        return origin_of(self.url)

    @property
    def path(self) -> str | None:
        """The path of this machine that it is; None when it is elsewhere."""
        return path_of(self.url)


@dataclass(frozen=True, slots=True, kw_only=True)
class PackageSources:
    """All of them, and what may be kept of what they have."""

    python: tuple[Source, ...] = ()
    is_merged: bool = False
    """Whether the files of all indexes count; else those of the first that has a project, and of what is links."""
    npm: Source | None = None
    npm_scopes: Mapping[str, Source] = field(default_factory=dict)
    """Where packages of a scope are, and nowhere else: `@scope`."""
    hosts: frozenset[str] = frozenset()
    """Where else an index may lead to, also if their addresses are not public."""
    ca_files: tuple[str, ...] = ()
    proxy: str = ""
    cache_bytes: int = 10 * GIB
    file_bytes: int = 4 * GIB
    page_s: float = 300.0
    """How long a page of an index is believed without asking again; what the index says counts if it is shorter."""


@dataclass(frozen=True, slots=True)
class Digest:
    """What the bytes of a file must hash to. The algorithms are those that nobody can forge."""

    algorithm: str
    value: str

    def __str__(self) -> str:
        return f"{self.algorithm}-{self.value}"


SIZES = {"sha256": 64, "sha384": 96, "sha512": 128}


def build_digest(algorithm: str, value: str) -> Digest | None:
    """Build a digest; None for what is none, or is of an algorithm that does not count."""
    value = value.lower()
    if len(value) != SIZES.get(algorithm, -1) or re.fullmatch(r"[0-9a-f]+", value) is None:
        return None
    return Digest(algorithm, value)


def origin_of(url: str) -> tuple[str, str, int | None]:
    """Return scheme, host and port of an address. Raises ValueError."""
    parts = urlsplit(url)
    return parts.scheme, (parts.hostname or "").lower(), parts.port or {"http": 80, "https": 443}.get(parts.scheme)


def path_of(url: str) -> str | None:
    """Return the path of a file: address; None of any other."""
    parts = urlsplit(url)
    return os.path.normpath(unquote(parts.path)) if parts.scheme == "file" else None
