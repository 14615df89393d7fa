"""Text boxes: one for each block of text of the page, seated by its first baseline."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from warren.render.pptx import seat
from warren.render.pptx.geometry import frame, moved, preset
from warren.render.pptx.text import paragraphs
from warren.render.pptx.xml import element, finite
from warren.render.scene.scene import Box, Paragraph, TextBox

if TYPE_CHECKING:
    from warren.render.pptx.page import Page

_TIGHT = 1.0
"""CSS pixels of slack for text that wraps by itself: enough for rounding, too little for another word."""


def text_box(value: TextBox, page: Page) -> Any:
    """`p:sp` with the words of one block."""
    box = value.box if value.is_vertical else seated(value)
    is_title = value.is_title and not page.has_title
    page.has_title = page.has_title or is_title
    kind = element("p:ph", {"type": "title"}) if is_title else None
    body = element(
        "a:bodyPr",
        {
            "vert": "eaVert" if value.is_vertical else "horz",
            "wrap": "square" if value.wraps else "none",
            "lIns": 0,
            "tIns": 0,
            "rIns": 0,
            "bIns": 0,
            "rtlCol": 0,
            "anchor": "t",
        },
        element("a:noAutofit"),
    )
    return element(
        "p:sp",
        None,
        element(
            "p:nvSpPr",
            None,
            page.properties(value.name, "Title" if is_title else "Text"),
            element("p:cNvSpPr", None if is_title else {"txBox": 1}),
            element("p:nvPr", None, kind),
        ),
        element("p:spPr", None, frame(box, page.scale), preset("rect"), element("a:noFill")),
        element(
            "p:txBody", None, body, element("a:lstStyle"), *paragraphs(value.paragraphs, page, value.box, value.alpha)
        ),
    )


def seated(value: TextBox) -> Box:
    """Return the box to write so that baselines and line breaks are where the page has them."""
    box = Box(
        finite(value.box.x), finite(value.box.y), finite(value.box.width), finite(value.box.height), value.box.rotation
    )
    if not value.paragraphs:
        return box
    first = value.paragraphs[0]
    baseline = first.first_baseline or value.first_baseline
    down = finite(baseline) - seat.above(first)
    high = seat.total(value.paragraphs)
    left, right = _slack(value)
    aside = _trailing(first)
    return moved(box, left + aside, -down, right - aside, down + high - box.height)


def _trailing(paragraph: Paragraph) -> float:
    """Return the offset of a line to the left: CSS adds letter-spacing after the last letter too, LibreOffice not."""
    share = {"center": 0.5, "right": 1.0}.get(paragraph.align, 0.0)
    return share * finite(paragraph.runs[-1].spacing) if paragraph.runs else 0.0


def _slack(value: TextBox) -> tuple[float, float]:
    """CSS pixels to add on the left and on the right."""
    wraps_itself = any(
        each.lines > 1 + sum(run.text.count("\n") for run in each.runs) for each in value.paragraphs
    ) or value.lines > sum(seat.lines_of(each) for each in value.paragraphs)
    if wraps_itself:
        amount = _TIGHT
    else:
        # Advances of other programs can be slightly wider; nothing here may wrap.
        largest = max(seat.size_of(each) for each in value.paragraphs)
        amount = 4 + 0.04 * max(value.box.width, 0) + 0.25 * largest
    aligns = {each.align for each in value.paragraphs}
    if aligns == {"center"}:
        return amount / 2, amount / 2
    if aligns == {"right"}:
        return amount, 0.0
    if "justify" in aligns:
        return 0.0, min(amount, _TIGHT)
    return (0.0, amount) if aligns == {"left"} else (0.0, 0.0)
