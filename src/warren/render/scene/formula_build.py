"""Formulas as letters and rules where they are painted: every program then shows them alike, and they stay text."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from warren.render.scene.blocks import Piece, pieces_of
from warren.render.scene.clip import clips_of, cut_to
from warren.render.scene.fonts import advance, office_width
from warren.render.scene.formula import is_hidden, source_of
from warren.render.scene.glyphs import Glyphs, glyphs_of, ink_of, tall_outline
from warren.render.scene.paint import Canvas, paint
from warren.render.scene.paths import Point, contours
from warren.render.scene.pictures import picture
from warren.render.scene.runs import base_run, fill_of, fonts_of, runs_of
from warren.render.scene.scene import Fill, Formula, Paragraph, Picture, Run, Shape, TextBox
from warren.render.scene.scripts import shorthand
from warren.render.scene.snapshot import Node, Rect, around
from warren.render.scene.text import baseline_of

if TYPE_CHECKING:
    from warren.render.scene.raw import RawSlide

_MOST = 2000
"""Parts of one formula."""
_BOLD = 600
_ALIKE = 0.08
"""How much larger or smaller ink may be, as a part of it, before another letter is taken."""
_RULE = 0.045
"""How thick rules are, as a part of the size."""
_STRETCHED = 1.25

Part = Shape | Picture | TextBox


def formula(canvas: Canvas, root: Node) -> Formula | None:
    """Return one formula, or None for one of which nothing is seen."""
    found: list[tuple[tuple[int, int], list[Part]]] = []
    words: list[str] = []
    stack = [root]
    count = 0
    while stack and count < _MOST:
        node = stack.pop()
        if is_hidden(node):
            continue
        if node.text is not None:
            parts: list[Part] = []
            for piece in pieces_of(node):
                parts += _letters(canvas.raw, piece)
                words.append(piece.text)
        elif node.name == "svg":
            parts = _drawing(canvas, node)
        else:
            parts = [*paint(canvas, node), *_rules(node)]
            stack.extend(reversed(node.children))
        found.append(((node.paint, node.order), parts))
        count += len(parts)
    found.sort(key=lambda one: one[0])
    items = tuple(part for _, parts in found for part in parts)
    if not items:
        return None
    return Formula(items=items, source=source_of(canvas.raw, root, " ".join(words)), box=root.box())


def _letters(raw: RawSlide, piece: Piece) -> list[Part]:
    """Return a piece as its own text; as a shape where no installed font has so tall a letter."""
    if not piece.text.strip():
        return []
    node, text = piece.node, piece.text.strip()
    stretched = _stretched(node, text)
    if stretched:
        return list(stretched)
    run = base_run(node, node.px("font-size"))
    fonts = fonts_of(raw, node, text)
    glyphs = glyphs_of(fonts[0], text, is_bold=run.weight >= _BOLD, is_italic=run.italic) if fonts else None
    baseline = baseline_of(raw, piece)
    if glyphs is None:
        return [_text(tuple(runs_of(raw, piece)), piece, piece.rect, baseline)]
    width = office_width(glyphs.face, glyphs.text, run.size, raw.tree()[0].bounds.width)
    free = 0.0 if width is None or len(text) == 1 else (piece.rect.width - width) / len(text)
    run = replace(
        run,
        text=glyphs.text,
        family=glyphs.face.family,
        weight=700 if glyphs.is_bold else 400,
        italic=glyphs.is_italic,
        spacing=free if abs(free) < 0.25 * run.size else 0.0,
    )
    ink = _ink(raw, piece, baseline) if len(text) == 1 else None
    return [_text((run,), piece, piece.rect, baseline)] if ink is None else _fitted(run, glyphs, piece, ink, baseline)


def _ink(raw: RawSlide, piece: Piece, baseline: float) -> Rect | None:
    known = raw.inks.get((shorthand(piece.node), piece.text.strip()))
    if known is None:
        return None
    left, up, right, down = (side * piece.node.zoom for side in known)
    made = Rect(piece.rect.x - left, baseline - up, left + right, up + down)
    return made if made.width > 0 and made.height > 0 else None


def _fitted(run: Run, glyphs: Glyphs, piece: Piece, ink: Rect, baseline: float) -> list[Part]:
    """Return a letter whose ink is where the browser painted it."""
    own = ink_of(glyphs.face, glyphs.text)
    if own is None:
        return [_text((run,), piece, piece.rect, baseline)]
    up, high, wide = own[1] * run.size, (own[1] + own[3]) * run.size, (own[0] + own[2]) * run.size
    small = _ALIKE * run.size
    is_high = abs(high - ink.height) < max(_ALIKE * ink.height, small / 2)
    is_wide = abs(wide - ink.width) < max(3 * _ALIKE * ink.width, small)
    size, stands = run.size, baseline
    if not (is_high and is_wide and abs(baseline - up - ink.y) < small):
        shapes = [] if glyphs.text.isalnum() else _outlined(piece.node, glyphs.text, ink)
        if shapes:
            return list(shapes)
        size = run.size * ink.height / high if high > 0 else run.size
        stands = ink.y + own[1] * size
    middle = ink.x + ink.width / 2 + size * ((advance(glyphs.face, glyphs.text) or 0.5) + own[0] - own[2]) / 2
    place = Rect(middle - piece.rect.width / 2, piece.rect.y, piece.rect.width, piece.rect.height)
    return [_text((replace(run, size=size),), piece, place, stands)]


def _text(runs: tuple[Run, ...], piece: Piece, rect: Rect, baseline: float) -> TextBox:
    """Return a text that is centred where it is painted: another program's font may be a little wider or narrower."""
    size = max(run.size for run in runs)
    line = Paragraph(runs=runs, align="center", first_baseline=baseline - rect.y, first_size=size)
    return TextBox(
        box=piece.node.box(rect),
        paragraphs=(line,),
        first_baseline=line.first_baseline,
        wraps=False,
        name=piece.text.strip()[:40],
    )


def _outlined(node: Node, letter: str, ink: Rect) -> list[Shape]:
    lines = tall_outline(letter, round(ink.width / ink.height, 3))
    placed = [[(ink.x + x * ink.width, ink.y + y * ink.height) for x, y in line] for line in lines]
    return [made for line in placed if (made := _polygon(node, line, fill_of(node), letter)) is not None]


def _polygon(node: Node, points: list[Point], fill: Fill, name: str) -> Shape | None:
    left, top = min(x for x, _ in points), min(y for _, y in points)
    wide, high = max(x for x, _ in points) - left, max(y for _, y in points) - top
    if wide <= 0 or high <= 0:
        return None
    corners = tuple(((x - left) / wide, (y - top) / high) for x, y in points)
    return Shape(box=node.box(Rect(left, top, wide, high)), fill=fill, polygon=corners, name=name)


def _drawing(canvas: Canvas, svg: Node) -> list[Part]:
    """Return the outlines of a drawing, such as of a root or a brace; its picture where it is more than that."""
    made: list[Part] = []
    stack = list(svg.children)
    while stack:
        node = stack.pop()
        if node.name == "g":
            stack.extend(node.children)
            continue
        lines = contours(node.attributes.get("d", "")) if node.name == "path" else []
        if not lines:
            return list(picture(canvas, svg))
        made += _placed(canvas, node, lines)
    return made


def _placed(canvas: Canvas, node: Node, lines: list[list[Point]]) -> list[Part]:
    """Put the lines of a path where the browser has it, cut as it cuts them."""
    xs, ys = [x for line in lines for x, _ in line], [y for line in lines for _, y in line]
    wide, high = max(xs) - min(xs), max(ys) - min(ys)
    if wide <= 0 or high <= 0:
        return []
    rect, clips = node.rect, clips_of(node, canvas.root)
    made: list[Part] = []
    for line in lines:
        points = [
            (rect.x + (x - min(xs)) / wide * rect.width, rect.y + (y - min(ys)) / high * rect.height) for x, y in line
        ]
        for clip in clips:
            points = cut_to(points, clip.rect)
        shape = _polygon(node, points, fill_of(node), "root") if len(points) > 2 else None
        made += [shape] if shape is not None else []
    return made


def _rules(node: Node) -> list[Part]:
    """Return what the browser draws of MathML that is no text: the line of a fraction, the sign of a root."""
    parts = [child for child in node.children if child.text is None]
    thick = max(1.0, _RULE * node.px("font-size"))
    if node.name == "mfrac" and len(parts) == 2 and not node.attributes.get("linethickness", "1").startswith("0"):
        middle = (parts[0].rect.bottom + parts[1].rect.y) / 2
        line = Rect(node.rect.x, middle - thick / 2, node.rect.width, thick)
        return [Shape(box=node.box(line), fill=fill_of(node), name="fraction")]
    if node.name not in {"msqrt", "mroot"} or not parts:
        return []
    inner = parts[0].rect if node.name == "mroot" else around(part.rect for part in parts)
    start = max(node.rect.x, inner.x - 0.9 * node.px("font-size")) if node.name == "mroot" else node.rect.x
    sign = Rect(start, node.rect.y, inner.x - start, node.rect.height)
    bar = Rect(inner.x - 1, node.rect.y, node.rect.right - inner.x + 1, thick)
    if sign.width <= 0 or sign.height <= 0:
        return []
    return [*_outlined(node, "\u221a", sign), Shape(box=node.box(bar), fill=fill_of(node), name="root")]


def _stretched(node: Node, text: str) -> list[Shape]:
    """Return the outline of a sign of MathML that grows with its neighbours."""
    size = node.px("font-size")
    if node.name != "mo" or len(text) != 1 or node.rect.height < _STRETCHED * size or node.rect.width <= 0:
        return []
    return _outlined(node, text, node.rect)
