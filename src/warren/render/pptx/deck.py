"""A deck of scenes as the bytes of a PPTX file: one page size, two layouts, no remains of a 4:3 page."""

from __future__ import annotations

import io
from dataclasses import replace
from typing import Any

from pptx import Presentation
from pptx.util import Emu

from warren.render.pptx.boxes import text_box
from warren.render.pptx.fill import fill
from warren.render.pptx.geometry import group
from warren.render.pptx.gradients import strips
from warren.render.pptx.page import Page
from warren.render.pptx.pictures import picture, readable
from warren.render.pptx.shapes import shapes
from warren.render.pptx.tables import table
from warren.render.pptx.xml import LONGEST_SIDE, SHORTEST_SIDE, Scale, clamped, element, finite, name_of, plain
from warren.render.scene.scene import Box, Chart, Deck, Formula, Picture, Shape, Slide, Table, TextBox

_TITLE_ONLY, _BLANK = "Title Only", "Blank"
_LONGEST_NOTES = 100_000


def write_deck(deck: Deck) -> bytes:
    """Return the PPTX file of `deck`; its first slide gives the size, and there must be one."""
    if not deck.slides:
        raise ValueError("A deck needs at least one slide.")
    presentation, scale = _new_presentation(deck)
    # All slides first: a link on the first may lead to the last.
    pages = [presentation.slides.add_slide(_layout(presentation, each)) for each in deck.slides]
    for slide, made in zip(deck.slides, pages, strict=True):
        _write_slide(slide, Page(scale, made, pages, deck.lang or "en-US"))
    target = io.BytesIO()
    presentation.save(target)
    return target.getvalue()


def _new_presentation(deck: Deck) -> tuple[Any, Scale]:
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


def _layout(presentation: Any, slide: Slide) -> Any:
    """Return the layout for a slide with or without a title of its own."""
    has_title = any(isinstance(item, TextBox) and item.is_title for item in slide.items)
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


def _write_slide(slide: Slide, page: Page) -> None:
    for placeholder in list(page.slide.placeholders):
        placeholder.element.getparent().remove(placeholder.element)
    _write_background(slide, page)
    for item in slide.items:
        if isinstance(item, Chart):
            _write_chart(item, page)
        else:
            for made in _elements(item, page):
                page.add(made)
    words = plain(slide.notes).replace("\r\n", "\n").replace("\r", "\n").strip()[:_LONGEST_NOTES]
    if words:
        page.slide.notes_slide.notes_text_frame.text = words


def _write_background(slide: Slide, page: Page) -> None:
    whole = Box(0, 0, finite(slide.width), finite(slide.height))
    if slide.background_picture is not None:
        blip = element("a:blip", {"r:embed": page.image(readable(slide.background_picture))})
        paint = element("a:blipFill", None, blip, element("a:stretch", None, element("a:fillRect")))
    elif slide.background is not None:
        paint = fill(slide.background, whole)
    else:
        return
    background = element("p:bg", None, element("p:bgPr", None, paint, element("a:effectLst")))
    page.slide.element.cSld.insert(0, background)
    if slide.background_picture is None:
        for strip in strips(Shape(box=whole, fill=slide.background, name="background"), -1.0):
            page.add(shapes(strip, page)[0])


def _elements(item: Shape | TextBox | Picture | Table | Formula, page: Page) -> list[Any]:
    match item:
        case Shape():
            return shapes(item, page)
        case TextBox():
            return [text_box(item, page)]
        case Picture():
            return [picture(item, page)]
        case Table():
            return [table(item, page)]
        case Formula():
            # `p:grpSp`: all of it moves as one, and its alternative text is what it was written as.
            properties = page.properties("Formula", "Formula", alt=item.source)
            return [group(properties, [made for part in item.items for made in _elements(part, page)])]


def _write_chart(chart: Chart, page: Page) -> None:
    # WHY here: the workbook writer is the slowest import, and most decks have no charts.
    from warren.render.pptx.charts import add_chart

    before: list[Any] = list(page.slide.shapes.element)
    try:
        add_chart(chart, page)
    except (ValueError, TypeError, KeyError, IndexError, AttributeError, NotImplementedError):
        for made in page.slide.shapes.element[len(before) :]:
            page.slide.shapes.element.remove(made)
        if chart.fallback:
            page.add(picture(Picture(box=replace(chart.box), data=chart.fallback, name=chart.name), page))
