"""One slide while it is written: its scale, its shapes' numbers, its links and its pictures."""

from __future__ import annotations

import io
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit

from pptx.opc.constants import RELATIONSHIP_TYPE
from pptx.opc.package import Part
from pptx.opc.packuri import PackURI

from warren.render.pptx.xml import Scale, element, plain

if TYPE_CHECKING:
    from collections.abc import Sequence

_LONGEST_LINK = 2_000
_JUMP = re.compile(r"#slide-(\d{1,4})")
_KEEP_COLOUR = "{A12FA001-AC4F-418D-AE19-62706E023703}"


@dataclass(slots=True)
class Page:
    """What the writers of shapes, text and pictures share on one slide."""

    scale: Scale
    slide: Any
    slides: Sequence[Any]
    lang: str = "en-US"
    has_title: bool = False
    _last_id: int = 1
    _svgs: dict[bytes, str] = field(default_factory=dict)

    def add(self, shape: Any) -> None:
        """Put `shape` in front of all others."""
        self.slide.shapes.element.append(shape)

    def properties(self, name: str, kind: str, *, alt: str = "", link: str = "", tag: str = "p:cNvPr") -> Any:
        """`p:cNvPr` with a number of its own."""
        number = self.take_id()
        title = plain(name)[:200].strip() or f"{kind} {number - 1}"
        attributes = {"id": number, "name": title, "descr": plain(alt)[:4_000] or None}
        return element(tag, attributes, self.link(link))

    def take_id(self) -> int:
        """Return the number of the next shape."""
        self._last_id += 1
        return self._last_id

    def link(self, target: str) -> Any:
        """`a:hlinkClick` to `target`, or None if it is none that a slide may have."""
        if jump := _JUMP.fullmatch(target):
            return self._jump(int(jump[1]))
        address = web_address(target)
        if address is None:
            return None
        relation = self.slide.part.relate_to(address, RELATIONSHIP_TYPE.HYPERLINK, is_external=True)
        return _click({"r:id": relation})

    def _jump(self, number: int) -> Any:
        if not 1 <= number <= len(self.slides):
            return None
        relation = self.slide.part.relate_to(self.slides[number - 1].part, RELATIONSHIP_TYPE.SLIDE)
        return _click({"r:id": relation, "action": "ppaction://hlinksldjump"})

    def image(self, data: bytes) -> str:
        """Return the relation to the part that holds `data`; the same bytes are one part in the whole deck."""
        _, relation = self.slide.part.get_or_add_image_part(io.BytesIO(data))
        return str(relation)

    def svg(self, drawing: bytes) -> str:
        """Return the relation to a part with an SVG drawing."""
        if drawing not in self._svgs:
            package = self.slide.part.package
            place = PackURI(f"/ppt/media/drawing_{self.slide.slide_id}_{len(self._svgs) + 1}.svg")
            part = Part(place, "image/svg+xml", package, drawing)
            self._svgs[drawing] = str(self.slide.part.relate_to(part, RELATIONSHIP_TYPE.IMAGE))
        return self._svgs[drawing]


def _click(attributes: dict[str, str]) -> Any:
    # Without this extension PowerPoint paints a link in the theme's colour and ignores its run.
    colour = element("ahyp:hlinkClr", {"val": "tx"})
    extension = element("a:extLst", None, element("a:ext", {"uri": _KEEP_COLOUR}, colour))
    return element("a:hlinkClick", attributes, extension)


def web_address(target: str) -> str | None:
    """`target` if PowerPoint accepts it: http, https or mailto and well formed; one bad link damages a whole file."""
    target = plain(target).strip()
    if not target or len(target) > _LONGEST_LINK:
        return None
    try:
        parts = urlsplit(target)
        is_right = bool(parts.hostname) if parts.scheme in {"http", "https"} else parts.scheme == "mailto"
        _ = parts.port
    except ValueError:
        return None
    if not is_right or (parts.scheme == "mailto" and not parts.path):
        return None
    # urlsplit has let a host with a space or a backslash pass; no browser would have gone there.
    if parts.hostname and not re.fullmatch(r"[\w.\-:%]+", parts.hostname):
        return None
    return quote(target, safe="%:/?#[]@!$&'()*+,;=~-._")
