"""The empty presentation of a deck: one page size, two layouts, no remains of a 4:3 page."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pptx import Presentation
from pptx.util import Emu

from warren.render.pptx.xml import LONGEST_SIDE, SHORTEST_SIDE, Scale, clamped, finite, name_of, plain

if TYPE_CHECKING:
    from warren.render.scene.scene import Deck

_TITLE_ONLY, _BLANK = "Title Only", "Blank"


def new_presentation(deck: Deck) -> tuple[Any, Scale]:
    """Return a presentation without slides, of the deck's size, and the scale of that size."""
    first = deck.slides[0]
    scale = Scale.of(first.width, first.height)
    presentation = Presentation()
    wide = clamped(finite(first.width) * scale.emu_per_px, SHORTEST_SIDE, LONGEST_SIDE)
    high = clamped(finite(first.height) * scale.emu_per_px, SHORTEST_SIDE, LONGEST_SIDE)
    _resize(presentation, wide / presentation.slide_width, high / presentation.slide_height)
    presentation.slide_width, presentation.slide_height = Emu(round(wide)), Emu(round(high))
    _keep_layouts(presentation)
    properties = presentation.core_properties
    properties.title = plain(deck.title)[:255]
    properties.author, properties.last_modified_by = "", ""
    properties.language = plain(deck.lang)[:20]
    return presentation, scale


def layout(presentation: Any, *, has_title: bool) -> Any:
    """Return the layout for a slide with or without a title of its own."""
    wanted = _TITLE_ONLY if has_title else _BLANK
    return next(each for each in presentation.slide_layouts if each.name == wanted)


def _resize(presentation: Any, across: float, down: float) -> None:
    """Move the placeholders of master and layouts with the page, for the slides that people add themselves."""
    master = presentation.slide_master
    for part in (master, *master.slide_layouts):
        for frame in part.element.iter(name_of("a:xfrm")):
            for point, x, y in ((frame.find(name_of("a:off")), "x", "y"), (frame.find(name_of("a:ext")), "cx", "cy")):
                if point is not None:
                    point.set(x, str(round(int(point.get(x)) * across)))
                    point.set(y, str(round(int(point.get(y)) * down)))


def _keep_layouts(presentation: Any) -> None:
    layouts = presentation.slide_layouts
    for each in list(layouts):
        if each.name not in {_TITLE_ONLY, _BLANK, "Title Slide", "Title and Content"}:
            layouts.remove(each)
