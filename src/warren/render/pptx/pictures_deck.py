"""PowerPoint with one exact picture a slide: not cut, not stretched, not packed again; with title, words and notes."""

from __future__ import annotations

import io
import zipfile
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pptx import Presentation
from pptx.opc.oxml import serialize_part_xml
from pptx.opc.packuri import CONTENT_TYPES_URI, PACKAGE_URI
from pptx.opc.serialized import _ContentTypesItem
from pptx.util import Emu

from warren.render.pptx.xml import plain

if TYPE_CHECKING:
    from pptx.presentation import Presentation as PptxPresentation
    from pptx.slide import Slide as PptxSlide

    from warren.render.capture.slides import Shot, Shown, Slide
    from warren.render.scene.raw import RawSlide

LONG_SIDE = 12_192_000
"""13.333 inches, PowerPoint's own width. WHY: 1920 pixels are then 6350 units each, without a remainder."""
_MIN_SIDE = 914_400
_TITLE_ONLY, _BLANK = 5, 6
_PACKED = (".png", ".jpg", ".jpeg", ".gif", ".webp", ".fntdata", ".xlsx")
"""Parts that are compressed already are stored: compressing again only takes time."""
_EPOCH = (1980, 1, 1, 0, 0, 0)


@dataclass(frozen=True, slots=True)
class Size:
    """Of a slide, in PowerPoint's units."""

    width: int
    height: int

    @classmethod
    def of(cls, width: float, height: float) -> Size:
        """Scale pixels so that the longer side has PowerPoint's own length."""
        unit = LONG_SIDE / max(width, height)
        return cls(max(_MIN_SIDE, round(width * unit)), max(_MIN_SIDE, round(height * unit)))

    def fit(self, width: float, height: float) -> tuple[int, int, int, int]:
        """Return left, top, width and height of the largest box of these proportions in the middle."""
        if round(self.width * height) == round(self.height * width):
            return 0, 0, self.width, self.height
        unit = min(self.width / width, self.height / height)
        wide, high = min(self.width, round(width * unit)), min(self.height, round(height * unit))
        return (self.width - wide) // 2, (self.height - high) // 2, wide, high


class PictureDeck:
    """Slides are added as their pictures come; the first one gives the size of all."""

    def __init__(self, title: str) -> None:
        self._presentation = Presentation()
        self._size: Size | None = None
        self.reasons: dict[int, str] = {}
        properties = self._presentation.core_properties
        properties.title = plain(title)[:250]
        properties.author = properties.last_modified_by = ""

    @property
    def count(self) -> int:
        """How many slides it has by now."""
        return len(self._presentation.slides)

    async def capture(self, _shown: Shown) -> None:
        """Capture nothing: the picture is enough."""

    def add(self, _raw: RawSlide | None, shot: Shot, slide: Slide) -> None:
        """Add one slide at the end."""
        if self._size is None:
            self._size = Size.of(shot.width, shot.height)
            self._presentation.slide_width = Emu(self._size.width)
            self._presentation.slide_height = Emu(self._size.height)
        title = plain(slide.title)
        layout = self._presentation.slide_layouts[_TITLE_ONLY if title else _BLANK]
        made = self._presentation.slides.add_slide(layout)
        if title:
            self._add_title(made, title, self._size)
        left, top, width, height = self._size.fit(shot.width, shot.height)
        picture = made.shapes.add_picture(io.BytesIO(shot.png), Emu(left), Emu(top), Emu(width), Emu(height))
        picture.name = f"Slide {self.count}"
        described = picture._element.nvPicPr.cNvPr  # noqa: SLF001 - the library has no name for the alternative text
        described.set("descr", plain(slide.text)[:2000] or title)
        if notes := plain(slide.notes):
            frame = made.notes_slide.notes_text_frame
            assert frame is not None
            frame.text = notes

    def finish(self) -> bytes:
        """Return the PowerPoint file."""
        return _write_package(self._presentation)

    def _add_title(self, slide: PptxSlide, title: str, size: Size) -> None:
        """Add a title for the outline and screen readers; the picture covers it."""
        shape = slide.shapes.title
        assert shape is not None
        shape.text = title
        shape.left, shape.top = Emu(size.width // 20), Emu(size.height // 20)
        shape.width, shape.height = Emu(size.width * 9 // 10), Emu(size.height // 10)


def _write_package(presentation: PptxPresentation) -> bytes:
    """Return the file's bytes; the same presentation gives the same bytes."""
    package = presentation.part.package
    parts = tuple(package.iter_parts())
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w") as archive:
        types = _ContentTypesItem.xml_for(parts)
        _add(archive, CONTENT_TYPES_URI.membername, serialize_part_xml(types))
        _add(archive, PACKAGE_URI.rels_uri.membername, package._rels.xml)  # noqa: SLF001 - has no public name
        for part in parts:
            _add(archive, part.partname.membername, part.blob)
            if part._rels:  # noqa: SLF001 - as above
                _add(archive, part.partname.rels_uri.membername, part.rels.xml)
    return written.getvalue()


def _add(archive: zipfile.ZipFile, name: str, content: bytes) -> None:
    member = zipfile.ZipInfo(name, _EPOCH)
    member.compress_type = zipfile.ZIP_STORED if name.endswith(_PACKED) else zipfile.ZIP_DEFLATED
    archive.writestr(member, content)
