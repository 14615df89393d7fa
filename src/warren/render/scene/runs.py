"""Pieces of text as runs: painted family, colour, decoration, link, and the spacing that locks the width."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from warren.render.scene import css
from warren.render.scene.fonts import Face, Painted, advance, covers, face_of, office_weight, office_width
from warren.render.scene.gradients import gradient, layers, part_of
from warren.render.scene.scene import Colour, Fill, Gradient, Run, Shadow, Stroke
from warren.render.scene.scripts import font_key, is_east_asian, kind

if TYPE_CHECKING:
    from warren.render.scene.blocks import Piece
    from warren.render.scene.raw import RawSlide
    from warren.render.scene.snapshot import Node

_LINK_SCHEMES = {"http", "https", "mailto"}
_LONGEST_LINK = 2000
# No design spaces letters further than this; a larger value is a measuring error.
_NARROWEST, _WIDEST = -0.2, 2.0
# From this part of the size on, a gap between letters is read as a space between words.
_WORD_GAP = 0.2
_MOST_SPACES = 200
_CLEAR = 0.02
_WORDS = re.compile(r"\S*\s+|\S+")


@dataclass(frozen=True, slots=True)
class Part:
    """Characters that one font paints."""

    text: str
    painted: Painted
    face: Face | None


def runs_of(raw: RawSlide, piece: Piece, *, gap: float = 0.0, is_loose: bool = False) -> list[Run]:
    """Return the runs of one piece. `gap` is the empty space after it; the width of a loose one is not locked."""
    if piece.is_room:
        return [_room(raw, piece, piece.rect.width + gap)]
    node = piece.node
    size = node.px("font-size")
    parts = parts_of(raw, node, piece.text)
    spacing = node.px("letter-spacing") if is_loose else _spacing(piece, parts, size, raw.tree()[0].bounds.width)
    base = base_run(node, size)
    made: list[Run] = []
    for part in parts:
        east = part.painted.family if any(is_east_asian(c) for c in part.text) else ""
        family = part.face.family if part.face else part.painted.family
        weight = office_weight(part.face, base.weight)
        family_ea = family if east or not part.text.isascii() else ""
        made.append(replace(base, text=part.text, family=family, family_ea=family_ea, weight=weight, spacing=spacing))
    made = _shaded(made, piece)
    if gap and made:
        made[-1:] = _with_gap(made[-1], gap, parts[-1].face)
    return made


def _shaded(runs: list[Run], piece: Piece) -> list[Run]:
    """Give each word its part of a gradient that goes over the whole block: LibreOffice has one colour for a run."""
    whole = runs[0].fill if runs else None
    ground = _ground(piece.node) if isinstance(whole, Gradient) and whole.angle is not None else None
    letters = sum(len(run.text) for run in runs)
    if ground is None or not isinstance(whole, Gradient) or not letters:
        return runs
    made: list[Run] = []
    at = 0
    for run in runs:
        for word in _WORDS.findall(run.text):
            left = piece.rect.x + piece.rect.width * at / letters - ground.rect.x
            frame = (left, piece.rect.y - ground.rect.y, piece.rect.width * len(word) / letters, piece.rect.height)
            part = part_of(whole, (ground.rect.width, ground.rect.height), frame)
            made.append(replace(run, text=word, fill=part))
            at += len(word)
    return made


def blank(raw: RawSlide, piece: Piece, width: float) -> Run:
    """Return a space as wide as the gap before a piece."""
    base, face = _empty(raw, piece)
    return replace(base, text=" ", spacing=width - _space(face) * base.size)


def _room(raw: RawSlide, piece: Piece, width: float) -> Run:
    """Return spaces that are as wide as a formula: programs agree on their width at the end of a line, too."""
    base, face = _empty(raw, piece)
    count = max(1, min(math.ceil(width / max(_space(face) * base.size, 1.0)), _MOST_SPACES))
    size = width / count / max(_space(face), 0.1)
    text = "\u00a0" * count
    made = office_width(face, text, size, raw.tree()[0].bounds.width) if face else None
    return replace(base, text=text, size=size, spacing=0.0 if made is None else (width - made) / count)


def _empty(raw: RawSlide, piece: Piece) -> tuple[Run, Face | None]:
    part = parts_of(raw, piece.node, piece.text)[0]
    base = replace(base_run(piece.node, piece.node.px("font-size")), underline=False, strike=False, link="")
    return replace(base, family=part.face.family if part.face else part.painted.family), part.face


def _space(face: Face | None) -> float:
    width = advance(face, " ") if face else None
    return 0.27 if width is None else width


def _with_gap(run: Run, gap: float, face: Face | None) -> list[Run]:
    """Add space that no character makes: to the last space, as a space of its own, or spread over the run."""
    if run.text.endswith((" ", "\u00a0")):
        last = replace(run, text=run.text[-1:], spacing=run.spacing + gap)
        return [replace(run, text=run.text[:-1]), last] if len(run.text) > 1 else [last]
    if gap > _WORD_GAP * run.size:
        # A space that is too wide for the gap is a smaller one: programs do not agree on spacing below nothing.
        size = min(run.size, gap / max(_space(face), 0.1))
        space = gap - _space(face) * size
        return [run, replace(run, text=" ", size=size, spacing=space, underline=False, strike=False, link="")]
    return [replace(run, spacing=run.spacing + gap / len(run.text))]


def parts_of(raw: RawSlide, node: Node, text: str) -> list[Part]:
    """Return the text cut where another of the painted fonts goes on."""
    painted = fonts_of(raw, node, text)
    if not painted:
        first = node.css("font-family").split(",")[0].strip().strip("\"'")[:100]
        return [Part(text, Painted(first or "Liberation Sans"), None)]
    faces = [(one, face_of(one)) for one in _by_wish(painted, node)]
    if len(faces) == 1:
        return [Part(text, *faces[0])]
    made: list[Part] = []
    for character, following in zip_longest(text, text[1:]):
        last = made[-1] if made else None
        # A sign that is asked for as an emoji is of their font.
        coloured = (one for one in faces if "Emoji" in one[0].family and following == "\ufe0f")
        chosen = next(coloured, None) or _chosen(character, faces, last)
        if last and chosen[0] == last.painted:
            made[-1] = Part(last.text + character, *chosen)
        else:
            made.append(Part(character, *chosen))
    return made


def _by_wish(painted: tuple[Painted, ...], node: Node) -> list[Painted]:
    """In the order of the style's list: a fallback that has a letter, too, did not paint it if a wished font has it."""
    wishes = [name.strip().strip("\"'").lower() for name in node.css("font-family")[:2000].split(",")]

    def place(one: Painted) -> tuple[int, bool]:
        # WHY the beginning: a heavy face's family is "Inter Extra Bold" to the browser, and "Inter" to the style.
        named = one.family.lower()
        wish = next((at for at, name in enumerate(wishes) if name and named.startswith(name)), len(wishes))
        return wish, "CJK" in one.family or "Emoji" in one.family

    return sorted(painted, key=place)


def _chosen(character: str, faces: list[tuple[Painted, Face | None]], last: Part | None) -> tuple[Painted, Face | None]:
    # WHY not after an emoji: spaces of those fonts are as wide as their pictures, and the browser takes the text's own.
    is_space = character == " " and last is not None and "Emoji" not in last.painted.family
    if last and (is_space or ord(character) in {0x200D, 0xFE0F, 0xFE0E}):
        return last.painted, last.face
    is_emoji = kind(character) == "symbol"
    for painted, face in faces:
        if face is not None and covers(face, character) and ("Emoji" not in painted.family or is_emoji):
            return painted, face
    unknown = next(((painted, face) for painted, face in faces if face is None), None)
    return unknown or ((last.painted, last.face) if last else faces[0])


def fonts_of(raw: RawSlide, node: Node, text: str) -> tuple[Painted, ...]:
    """Return the fonts that the browser painted such text with, most used first."""
    key = font_key(node, text)
    found = raw.fonts.get(key)
    if found:
        return found
    return next((fonts for other, fonts in raw.fonts.items() if other[:3] == key[:3] and fonts), ())


def _spacing(piece: Piece, parts: list[Part], size: float, slide_width: float) -> float:
    """Return what each character's advance lacks to the width that the browser measured."""
    asked = piece.node.px("letter-spacing")
    count = len(piece.text)
    if count < 1 or size <= 0 or any(part.face is None for part in parts):
        return asked
    whole = 0.0
    for part in parts:
        width = office_width(part.face, part.text, size, slide_width, ligatures=not asked) if part.face else None
        if width is None:
            return asked
        whole += width
    found = (piece.rect.width - whole) / count
    if not _NARROWEST * size < found < _WIDEST * size or abs(found - asked) > 0.25 * size:
        return asked
    return 0.0 if abs(found) < 0.01 else found


def base_run(node: Node, size: float) -> Run:
    """Return the style of a node's text, without words."""
    lines = " ".join([node.css("text-decoration-line"), *_inherited_lines(node)])
    weight = css.number(node.css("font-weight"), 400)
    return Run(
        text="",
        size=size,
        weight=int(weight),
        italic=node.css("font-style") != "normal",
        underline="underline" in lines,
        strike="line-through" in lines,
        fill=fill_of(node),
        outline=_outline(node),
        is_hollow=_outline(node) is not None and _is_clear(node),
        link=link_of(node),
        shadow=_shadow(node),
    )


def _outline(node: Node) -> Stroke | None:
    width, paint = node.px("-webkit-text-stroke-width"), css.colour(node.css("-webkit-text-stroke-color"))
    if node.is_svg or width <= 0 or paint is None or paint.alpha * node.opacity <= _CLEAR:
        return None
    return Stroke(width, css.faded(paint, node.opacity))


def _is_clear(node: Node) -> bool:
    """Whether text is not filled, and nothing shines through it."""
    paint = css.colour(node.css("-webkit-text-fill-color")) or css.colour(node.css("color"))
    return paint is not None and paint.alpha < _CLEAR and _ground(node) is None


def _inherited_lines(node: Node) -> list[str]:
    """Return the decorations that inline content inherits from its block."""
    found: list[str] = []
    inner = node
    while inner.css("display") == "inline" and inner.parent is not None:
        inner = inner.parent
        found.append(inner.css("text-decoration-line"))
    return found


def fill_of(node: Node) -> Fill:
    """Return the paint of a node's text, opacity included."""
    name = "fill" if node.is_svg else "-webkit-text-fill-color"
    paint = css.colour(node.css(name)) or css.colour(node.css("color")) or Colour(0, 0, 0)
    if node.is_svg:
        paint = css.faded(paint, css.number(node.css("fill-opacity"), 1.0))
    if paint.alpha < _CLEAR:
        clipped = _clipped_to_text(node)
        if clipped is not None:
            return clipped
        stroke = css.colour(node.css("-webkit-text-stroke-color"))
        if stroke and css.number(node.css("-webkit-text-stroke-width")) > 0:
            paint = stroke
    return css.faded(paint, node.opacity)


def _ground(node: Node) -> Node | None:
    """Return the element whose background shines through the text."""
    return next((owner for owner in [node, *node.ancestors()] if "text" in owner.css("background-clip")), None)


def _clipped_to_text(node: Node) -> Fill | None:
    owner = _ground(node)
    if owner is None:
        return None
    for layer in layers(owner.css("background-image")):
        found = gradient(layer, owner.rect.width, owner.rect.height)
        if found:
            stops = tuple(replace(s, colour=css.faded(s.colour, node.opacity)) for s in found.stops)
            return replace(found, stops=stops)
    return css.colour(owner.css("background-color"))


def _shadow(node: Node) -> Shadow | None:
    found = css.shadows(node.css("text-shadow"))
    if not found:
        return None
    one = found[0]
    return replace(one, x=one.x * node.zoom, y=one.y * node.zoom, blur=one.blur * node.zoom)


def link_of(node: Node) -> str:
    """Where the text leads, if to somewhere that a presentation may name."""
    for owner in [node, *node.ancestors()]:
        if owner.name == "a":
            address = (owner.attributes.get("href") or owner.attributes.get("xlink:href") or "").strip()
            try:
                is_good = urlsplit(address).scheme.lower() in _LINK_SCHEMES and len(address) < _LONGEST_LINK
            except ValueError:
                is_good = False
            return address if is_good else ""
    return ""
