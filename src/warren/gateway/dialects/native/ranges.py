"""Ranges and conditions of requests for a file, as RFC 9110 has them (sections 13 and 14). No I/O."""

from __future__ import annotations

import re
from dataclasses import dataclass
from email.utils import formatdate, parsedate_to_datetime
from typing import TYPE_CHECKING, NamedTuple

from warren.domain.errors import OutOfRange, PreconditionFailed

if TYPE_CHECKING:
    from collections.abc import Callable

    from warren.domain.values import Entry

_LAST_SECOND = 253_402_300_799
"""Of the year 9999, which is as far as the dates of HTTP go."""
_ONE_RANGE = re.compile(r"bytes\s*=\s*([0-9]{0,18})\s*-\s*([0-9]{0,18})\s*", re.IGNORECASE)
_TAG = re.compile(r'(W/)?("[^"]*")')


class Span(NamedTuple):
    """A part of a file."""

    start: int
    length: int

    def content_range(self, size: int) -> str:
        """Render the header that says which part of the whole this is."""
        return f"bytes {self.start}-{self.start + self.length - 1}/{size}"


def etag(entry: Entry) -> str:
    """Build the tag of a file's state. Every write of ours makes a new one: the agent gives it a time of its own."""
    return f'"{entry.size:x}-{entry.mtime_ns & (1 << 64) - 1:x}"'


def last_modified(entry: Entry) -> str:
    """Render when a file was last changed; a time that HTTP cannot say becomes the nearest that it can."""
    return formatdate(_seconds(entry), usegmt=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Conditions:
    """The headers of one request that make it depend on what is there."""

    if_match: str | None = None
    if_none_match: str | None = None
    if_modified_since: str | None = None
    if_unmodified_since: str | None = None
    if_range: str | None = None
    range: str | None = None

    @classmethod
    def of(cls, header: Callable[[bytes], str | None]) -> Conditions:
        """Read them from a request."""
        return cls(**{name: header(name.replace("_", "-").encode()) for name in cls.__slots__})

    def __bool__(self) -> bool:
        return any(getattr(self, name) is not None for name in self.__slots__)

    def check(self, entry: Entry | None) -> None:
        """Raise PreconditionFailed when If-Match or If-Unmodified-Since do not hold; None is: nothing is there."""
        if self.if_match is not None:
            if entry is None or not _matches(self.if_match, etag(entry), weak=False):
                raise PreconditionFailed("the file is not the one that If-Match names: read it again")
        elif self.if_unmodified_since is not None:
            since = _parse_date(self.if_unmodified_since)
            if since is not None and (entry is None or _seconds(entry) > since):
                raise PreconditionFailed("the file was changed after If-Unmodified-Since: read it again")

    def check_write(self, entry: Entry | None) -> None:
        """Raise PreconditionFailed when a write or a delete may not go ahead."""
        self.check(entry)
        if self.if_none_match is not None and entry is not None and _matches(self.if_none_match, etag(entry)):
            raise PreconditionFailed("there is a file already, and If-None-Match forbids to replace it")

    @property
    def wants_new(self) -> bool:
        """Whether a write may only make a file that is not there yet."""
        return (self.if_none_match or "").strip() == "*"

    def is_unchanged(self, entry: Entry) -> bool:
        """Whether the caller has this state of the file already, so that 304 is the answer."""
        if self.if_none_match is not None:
            return _matches(self.if_none_match, etag(entry))
        since = None if self.if_modified_since is None else _parse_date(self.if_modified_since)
        return since is not None and _seconds(entry) <= since

    def span(self, entry: Entry) -> Span | None:
        """Return the part that is wanted; None is all of it. Raises OutOfRange."""
        if self.range is None or (self.if_range is not None and not _is_same(self.if_range, entry)):
            return None
        return parse_range(self.range, entry.size)


def parse_range(text: str, size: int) -> Span | None:
    """Read a Range header for a file of that size. Raises OutOfRange when the file has no such part.

    Several ranges, other units and what makes no sense are None: the whole file is a right answer to them.
    """
    found = _ONE_RANGE.fullmatch(text.strip())
    if found is None or found[1] == found[2] == "":
        return None
    if found[1] == "":
        start, end = max(0, size - int(found[2])), size
    else:
        start, end = int(found[1]), size if found[2] == "" else min(size, int(found[2]) + 1)
        if found[2] != "" and int(found[2]) < start:
            return None
    if start >= end:
        raise OutOfRange(f"the file has {size} bytes, and no part {text.strip()[:80]!r}", size=size)
    return Span(start, end - start)


def _matches(listed: str, tag: str, *, weak: bool = True) -> bool:
    if listed.strip() == "*":
        return True
    return any(found[2] == tag and (weak or not found[1]) for found in _TAG.finditer(listed))


def _is_same(validator: str, entry: Entry) -> bool:
    validator = validator.strip()
    return validator == (etag(entry) if validator.endswith('"') else last_modified(entry))


def _seconds(entry: Entry) -> int:
    return min(max(entry.mtime_ns // 1_000_000_000, 0), _LAST_SECOND)


def _parse_date(text: str) -> float | None:
    try:
        return parsedate_to_datetime(text).timestamp()
    except (ValueError, TypeError, OverflowError, IndexError):
        return None
