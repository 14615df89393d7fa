"""The text of drawings: each `text` or `tspan` of an SVG becomes a text box over the picture of the rest."""

from __future__ import annotations

from typing import TYPE_CHECKING

from warren.render.scene import css
from warren.render.scene.blocks import Group, Piece
from warren.render.scene.lines import TextLine
from warren.render.scene.scene import TextBox
from warren.render.scene.snapshot import Node, Rect, turned, unturned
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
    drawing = next((owner for owner in [node, *node.ancestors()] if owner.name == "svg"), None)
    turn = _turn(style, drawing)
    size = css.number(node.css("font-size"))
    rect = unturned(node.bounds, turn, size * 1.2)
    if size <= 0 or rect.height <= 0:
        return None
    known = raw.metrics.get(_shorthand(style))
    natural = sum(known) if known else size * 1.2
    # WHY: a drawing is scaled to its view box, which no computed style tells; the height of its letters does.
    style.zoom = rect.height / natural if natural > 0 else 1.0
    words = " ".join(node.text.split()) if node.text else ""
    group = Group(style, [Piece(style, words, rect)], turn=turn)
    laid = laid_out(raw, group, [TextLine(group.pieces)])
    if laid is None:
        return None
    align = _ALIGN.get(style.css("text-anchor"), "left")
    from dataclasses import replace

    paragraphs = tuple(replace(one, align=align) for one in laid.paragraphs)
    return TextBox(
        box=turned(laid.rect, turn),
        paragraphs=paragraphs,
        first_baseline=paragraphs[0].first_baseline,
        wraps=False,
        name=words[:40],
    )


def _shorthand(style: Node) -> str:
    from warren.render.scene.scripts import shorthand

    return shorthand(style)


def _turn(style: Node, drawing: Node | None) -> float:
    """How far the text is turned: its own `transform` is an attribute or a style, and is in the matrix already."""
    del drawing
    return style.turn


def area(node: Node) -> Rect:
    """Where a drawing is."""
    return node.bounds
