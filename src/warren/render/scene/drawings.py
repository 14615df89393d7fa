"""The text of drawings: each `text` or `tspan` of an SVG becomes a text box over the picture of the rest."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from warren.render.scene import css
from warren.render.scene.blocks import Group, Piece
from warren.render.scene.lines import TextLine
from warren.render.scene.scene import TextBox
from warren.render.scene.scripts import shorthand
from warren.render.scene.snapshot import Node, turned, unturned
from warren.render.scene.text import laid_out

if TYPE_CHECKING:
    from warren.render.scene.raw import RawSlide

_ALIGN = {"middle": "center", "end": "right"}


def drawing_texts(raw: RawSlide, nodes: list[Node]) -> list[tuple[tuple[int, int], TextBox]]:
    """Return the text boxes of all drawings, with their place in the order of painting."""
    found: list[tuple[tuple[int, int], TextBox]] = []
    for node in nodes:
        if not node.is_svg or node.text is None or not node.text.strip() or node.parent is None or not node.is_visible:
            continue
        box = _text_box(raw, node)
        if box is not None:
            found.append(((node.paint, node.order), box))
    return found


def _text_box(raw: RawSlide, node: Node) -> TextBox | None:
    style = node.parent
    if style is None or node.bounds.width <= 0 or node.bounds.height <= 0:
        return None
    # Its own `transform`, an attribute or a style, is in the matrix already.
    turn = style.turn
    size = css.number(node.css("font-size"))
    rect = unturned(node.bounds, turn, size * 1.2)
    if size <= 0 or rect.height <= 0:
        return None
    known = raw.metrics.get(shorthand(style))
    natural = sum(known) if known else size * 1.2
    # WHY: a drawing is scaled to its view box, which no computed style tells; the height of its letters does.
    style.zoom = rect.height / natural if natural > 0 else 1.0
    words = " ".join(node.text.split()) if node.text else ""
    group = Group(style, [Piece(style, words, rect)], turn=turn)
    laid = laid_out(raw, group, [TextLine(group.pieces)])
    if laid is None:
        return None
    align = _ALIGN.get(style.css("text-anchor"), "left")
    paragraphs = tuple(replace(one, align=align) for one in laid.paragraphs)
    return TextBox(
        box=turned(laid.rect, turn),
        paragraphs=paragraphs,
        first_baseline=paragraphs[0].first_baseline,
        wraps=False,
        name=words[:40],
    )
