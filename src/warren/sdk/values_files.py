"""Answers about files, as frozen values."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime  # noqa: TC003 - a field's type, read where the page about the library is made
from typing import TYPE_CHECKING

from warren.sdk.values import TIME, build_all

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A file, folder or link of a workspace."""

    name: str
    type: str
    """file, directory, link or other."""
    size: int
    path: str
    modified_at: datetime = field(metadata=TIME)
    mode: str
    """Permissions, in octal."""
    target: str | None
    encoded_path: str
    """The path as it stands in an address, exact also where a name is no UTF-8."""


@dataclass(frozen=True, slots=True)
class Listing:
    """The entries of a folder."""

    entries: tuple[Entry, ...]
    is_complete: bool
    """False when there are more than were listed."""

    def __iter__(self) -> Iterator[Entry]:
        return iter(self.entries)

    def __len__(self) -> int:
        return len(self.entries)


@dataclass(frozen=True, slots=True, kw_only=True)
class FileInfo:
    """What is known of one file."""

    path: str
    size: int
    content_type: str
    etag: str
    """Names this state of the file: give it as `if_match=` to write only if it has not changed."""
    modified_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Match:
    """A file that a search found, or a line of one."""

    path: str
    line: int | None
    text: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What a search found."""

    items: tuple[Match, ...] = field(metadata=build_all(Match))
    complete: bool

    def __iter__(self) -> Iterator[Match]:
        return iter(self.items)

    def __len__(self) -> int:
        return len(self.items)
