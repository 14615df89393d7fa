"""Elements of PPTX parts, and numbers and words as such a part may hold them."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Any

from lxml import etree

NAMESPACES = {
    "a": "http://schemas.openxmlformats.org/drawingml/2006/main",
    "p": "http://schemas.openxmlformats.org/presentationml/2006/main",
    "r": "http://schemas.openxmlformats.org/officeDocument/2006/relationships",
    "asvg": "http://schemas.microsoft.com/office/drawing/2016/SVG/main",
    "ahyp": "http://schemas.microsoft.com/office/drawing/2018/hyperlinkcolor",
}
# XML 1.0 has no place for these, not even escaped; PowerPoint calls a file with one of them damaged.
_UNWRITABLE = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
EMU_PER_INCH = 914_400
SLIDE_WIDTH = 12_192_000
"""13.333 in: the width of PowerPoint's own wide page."""
LONGEST_SIDE = 56 * EMU_PER_INCH
SHORTEST_SIDE = EMU_PER_INCH
_FARTHEST = 40_000_000
"""EMU from the corner; PowerPoint refuses coordinates beyond 2**31 and has no use for such a place."""


def name_of(tag: str) -> str:
    """`a:off` as lxml wants it."""
    prefix, _, local = tag.partition(":")
    return f"{{{NAMESPACES[prefix]}}}{local}" if local else tag


def element(tag: str, attributes: dict[str, Any] | None = None, *children: Any, text: str | None = None) -> Any:
    """`element("a:off", {"x": 0, "y": 0})`; attributes and children that are None are left out."""
    made = etree.Element(name_of(tag), nsmap=NAMESPACES if tag.startswith("p:") else None)
    for key, value in (attributes or {}).items():
        if value is not None:
            made.set(name_of(key), value if isinstance(value, str) else str(value))
    made.extend(child for child in children if child is not None)
    if text is not None:
        made.text = text
    return made


def plain(text: str) -> str:
    """`text` without what XML cannot hold."""
    return _UNWRITABLE.sub("", text)


def finite(value: float, otherwise: float = 0.0) -> float:
    """`value`, or `otherwise` where it is no number; a page can compute both NaN and infinity."""
    return value if math.isfinite(value) else otherwise


def clamped(value: float, low: float, high: float) -> float:
    """`value` between `low` and `high`; `low` where it is no number."""
    return min(max(finite(value, low), low), high)


@dataclass(frozen=True, slots=True)
class Scale:
    """From CSS pixels of this deck to the units of PPTX."""

    emu_per_px: float

    @classmethod
    def of(cls, width: float, height: float) -> Scale:
        """Return the scale at which a page of this size is 13.333 in wide, or as high as PowerPoint allows."""
        wide, high = max(finite(width), 1.0), max(finite(height), 1.0)
        return cls(min(SLIDE_WIDTH / wide, LONGEST_SIDE / high))

    def place(self, px: float) -> int:
        """Return a coordinate."""
        return round(clamped(finite(px) * self.emu_per_px, -_FARTHEST, _FARTHEST))

    def length(self, px: float) -> int:
        """Return a width or a height: never negative, never nothing."""
        return round(clamped(finite(px) * self.emu_per_px, 1, _FARTHEST))

    def line(self, px: float) -> int:
        """Return the width of a line, which PowerPoint bounds."""
        return round(clamped(finite(px) * self.emu_per_px, 0, 20_116_800))

    def inset(self, px: float) -> int:
        """Return a margin: may be 0."""
        return round(clamped(finite(px) * self.emu_per_px, 0, _FARTHEST))

    def points(self, px: float) -> float:
        """Typographic points."""
        return finite(px) * self.emu_per_px / 12_700
