"""The capture of one slide, as plain values: the only input of the scene."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from warren.render.scene.fonts import Painted
    from warren.render.scene.snapshot import Node, Page

FontKey = tuple[str, str, str, str]
"""Family list, weight, style, and kinds of script in the text."""


@dataclass(frozen=True, slots=True)
class Raster:
    """A picture of an element's own paint, and where it is, in pixels from the slide's corner."""

    x: float
    y: float
    width: float
    height: float
    png: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class Image:
    """The content of an image's file."""

    data: bytes = field(repr=False)
    mime: str


@dataclass(slots=True)
class RawSlide:
    """One slide as captured. Everything in it comes from a page that may be hostile."""

    index: int
    root: int
    """Backend node id of the slide's element."""
    page: Page = field(repr=False)
    metrics: dict[str, tuple[float, float]] = field(default_factory=dict)
    """Ascent and descent in pixels, by CSS font shorthand."""
    fonts: dict[FontKey, tuple[Painted, ...]] = field(default_factory=dict)
    inks: dict[tuple[str, str], tuple[float, float, float, float]] = field(default_factory=dict)
    """How far the ink of single characters of formulas reaches from where they stand: left, up, right, down; by CSS
    font shorthand and character."""
    rasters: dict[str, Raster] = field(default_factory=dict)
    """By key of the request: see scene_plan."""
    svgs: dict[int, str] = field(default_factory=dict)
    """Drawings without their text, by backend node id."""
    images: dict[str, Image] = field(default_factory=dict)
    """By address."""
    charts: dict[int, Any] = field(default_factory=dict)
    """What a chart library says of itself, by backend node id of its canvas or container."""
    _tree: tuple[Node, list[Node]] | None = field(default=None, repr=False)

    def tree(self) -> tuple[Node, list[Node]]:
        """Return the slide's root and all its nodes. Raises SnapshotError."""
        if self._tree is None:
            self._tree = self.page.slide(self.root)
        return self._tree
