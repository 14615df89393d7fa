"""Answers about renders of slides, as frozen values."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime  # noqa: TC003 - a field's type, read where the page about the library is made

from warren.sdk.values import TIME, TUPLE, Owner, build_all, build_one


@dataclass(frozen=True, slots=True, kw_only=True)
class DegradedSlide:
    """A slide that is a picture though it was meant to be editable."""

    slide: int
    """Its number, from 1."""
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MissingFile:
    """What a page asked for and did not get."""

    url: str
    """On the web, or as the page names its own files."""
    count: int
    """How often it asked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RenderInfo:
    """A deck that is rendered, and what became of it."""

    id: str
    status: str
    """queued, running, done or failed."""
    version: str
    """v1 (pictures) or v2 (editable)."""
    name: str
    slides: int
    degraded: tuple[DegradedSlide, ...] = field(metadata=build_all(DegradedSlide))
    missing: tuple[MissingFile, ...] = field(default=(), metadata=build_all(MissingFile))
    """The first 20: a render has no network, and only the assets that came with it."""
    script_errors: tuple[str, ...] = field(default=(), metadata=TUPLE)
    """The first 10 uncaught exceptions of the page's scripts."""
    reason: str | None
    """Why it failed, in a word."""
    error: str | None
    """Why it failed, in a sentence."""
    owner: Owner = field(metadata=build_one(Owner))
    created_at: datetime = field(metadata=TIME)
    finished_at: datetime | None = field(metadata=TIME)
    expires_at: datetime = field(metadata=TIME)

    @property
    def warnings(self) -> tuple[str, ...]:
        """What may be wrong with the slides, a sentence each."""
        degraded = (f"slide {each.slide} is a picture: {each.why}" for each in self.degraded)
        missing = (_explain_missing(each.url) for each in self.missing)
        errors = (f"a script of the page failed: {each}" for each in self.script_errors)
        return (*degraded, *missing, *errors)

    @property
    def is_over(self) -> bool:
        """Whether it is done, or has failed."""
        return self.finished_at is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class RenderStep:
    """How far a render is."""

    phase: str
    """load, slides or write."""
    done: int
    total: int
    """0 where it is unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rendered:
    """A presentation, and what is known about it."""

    archive: bytes = field(repr=False)
    """A zip: the presentation, and a picture of each slide under `slides/`."""
    info: RenderInfo


def _explain_missing(url: str) -> str:
    if url.startswith(("http://", "https://")):
        return f"the page asked for {url}, which is not there: a render has no network; bring the file, as assets/NAME"
    return f"the page asked for {url}, which did not come with it: bring the file, as assets/NAME"
