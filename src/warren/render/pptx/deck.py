"""A deck of scenes as the bytes of a PPTX file."""

from __future__ import annotations

import io
from dataclasses import replace
from typing import Any

from warren.render.pptx.boxes import text_box
from warren.render.pptx.fill import fill
from warren.render.pptx.geometry import group
from warren.render.pptx.gradients import strips
from warren.render.pptx.notes import write_notes
from warren.render.pptx.page import Page
from warren.render.pptx.pictures import picture, readable
from warren.render.pptx.shapes import shapes
from warren.render.pptx.tables import table
from warren.render.pptx.template import layout, new_presentation
from warren.render.pptx.xml import element, finite
from warren.render.scene.scene import Box, Chart, Deck, Formula, Item, Picture, Shape, Slide, Table, TextBox


def write_deck(deck: Deck) -> bytes:
    """Return the PPTX file of `deck`; its first slide gives the size, and there must be one."""
    if not deck.slides:
        message = "A deck needs at least one slide."
        raise ValueError(message)
    presentation, scale = new_presentation(deck)
    # All slides first: a link on the first may lead to the last.
    pages = [presentation.slides.add_slide(layout(presentation, has_title=_has_title(each))) for each in deck.slides]
    for slide, made in zip(deck.slides, pages, strict=True):
        _write_slide(slide, Page(scale, made, pages, deck.lang or "en-US"))
    target = io.BytesIO()
    presentation.save(target)
    return target.getvalue()


def _has_title(slide: Slide) -> bool:
    return any(isinstance(item, TextBox) and item.is_title for item in slide.items)


def _write_slide(slide: Slide, page: Page) -> None:
    for placeholder in list(page.slide.placeholders):
        placeholder.element.getparent().remove(placeholder.element)
    _write_background(slide, page)
    for item in slide.items:
        _write_item(item, page)
    write_notes(page.slide, slide.notes)


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


def _write_item(item: Item, page: Page) -> None:
    match item:
        case Shape():
            for made in shapes(item, page):
                page.add(made)
        case TextBox():
            page.add(text_box(item, page))
        case Picture():
            page.add(picture(item, page))
        case Table():
            page.add(table(item, page))
        case Chart():
            _write_chart(item, page)
        case Formula():
            page.add(_formula(item, page))


def _formula(value: Formula, page: Page) -> Any:
    """`p:grpSp`: all of it moves as one, and its alternative text is what it was written as."""
    properties = page.properties("Formula", "Formula", alt=value.source)
    made: list[Any] = []
    for item in value.items:
        match item:
            case Shape():
                made += shapes(item, page)
            case TextBox():
                made.append(text_box(item, page))
            case Picture():
                made.append(picture(item, page))
    return group(properties, made)


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
