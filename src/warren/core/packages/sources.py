"""Package sources: the operator's indexes, as plain values."""

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
    """One index, registry or folder of files."""

    url: str
    """An http, https or file URL. That of an index ends with a slash."""
    is_links: bool = False
    """Whether it is a folder or page with the files of all projects: find-links of pip."""
    authorization: str = ""
    """Value of the header, for this origin only."""

    @property
    def origin(self) -> tuple[str, str, int | None]:
        """Scheme, host and port."""
        return origin_of(self.url)

    @property
    def path(self) -> str | None:
        """The local path; None for a remote source."""
        return path_of(self.url)


@dataclass(frozen=True, slots=True, kw_only=True)
class PackageSources:
    """All sources, and the limits of the cache."""

    python: tuple[Source, ...] = ()
    is_merged: bool = False
    """Whether the files of all indexes count, or only those of the first that has a project; links always count."""
    npm: Source | None = None
    npm_scopes: Mapping[str, Source] = field(default_factory=dict)
    """Registries of npm scopes, by `@scope`; packages of a scope come from there only."""
    hosts: frozenset[str] = frozenset()
    """Hosts that an index may link to although their addresses are not public."""
    ca_files: tuple[str, ...] = ()
    proxy: str = ""
    cache_bytes: int = 10 * GIB
    file_bytes: int = 4 * GIB
    page_s: float = 300.0
    """Seconds that a page is fresh; a shorter max-age of the index counts."""


@dataclass(frozen=True, slots=True)
class Digest:
    """Digest of a file, with a collision-resistant algorithm."""

    algorithm: str
    value: str

    def __str__(self) -> str:
        return f"{self.algorithm}-{self.value}"


SIZES = {"sha256": 64, "sha384": 96, "sha512": 128}


def build_digest(algorithm: str, value: str) -> Digest | None:
    """Build a digest; None for a malformed one, or an algorithm that is not accepted."""
    value = value.lower()
    if len(value) != SIZES.get(algorithm, -1) or re.fullmatch(r"[0-9a-f]+", value) is None:
        return None
    return Digest(algorithm, value)


def origin_of(url: str) -> tuple[str, str, int | None]:
    """Return scheme, host and port of a URL. Raises ValueError."""
    parts = urlsplit(url)
    return parts.scheme, (parts.hostname or "").lower(), parts.port or {"http": 80, "https": 443}.get(parts.scheme)


def path_of(url: str) -> str | None:
    """Return the path of a file URL; None for any other."""
    parts = urlsplit(url)
    return os.path.normpath(unquote(parts.path)) if parts.scheme == "file" else None
