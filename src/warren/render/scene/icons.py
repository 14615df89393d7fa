"""Icons from fonts of the page: taken as pictures, because without the font they are empty boxes."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from typing import TYPE_CHECKING

from warren.render.scene.fonts import face_of
from warren.render.scene.runs import fonts_of, link_of
from warren.render.scene.snapshot import Node, Rect

if TYPE_CHECKING:
    from warren.render.scene.blocks import Group, Piece
    from warren.render.scene.paint import Canvas
    from warren.render.scene.raw import RawSlide
    from warren.render.scene.scene import Picture

_ICON_FONT = re.compile(r"icon|awesome|material symbols|glyph", re.IGNORECASE)
_ICON_CLASS = re.compile(r"(?:fa|bi|ri|ti|mdi|icon|glyphicon)-([\w-]{2,40})", re.ASCII)
_LONGEST = 40
# Icons are small, and shown larger now and then.
_SHARP = 2.0


def take_icons(canvas: Canvas, groups: list[Group]) -> list[tuple[Piece, Picture]]:
    """Take the icons out of the text and return their pictures; those not taken yet are asked for."""
    found: list[tuple[Piece, Picture]] = []
    for group in groups:
        marks = [group.bullet] if group.bullet is not None else []
        icons = [piece for piece in [*marks, *group.pieces] if is_icon(canvas.raw, piece)]
        if not icons:
            continue
        # The gap that they leave is as wide as they were.
        gone = {id(piece) for piece in icons}
        group.pieces = [piece for piece in group.pieces if id(piece) not in gone]
        group.bullet = None if id(group.bullet) in gone else group.bullet
        for piece in icons:
            picture = _picture(canvas, piece)
            if picture is not None:
                found.append((piece, picture))
    return found


def is_icon(raw: RawSlide, piece: Piece) -> bool:
    """Whether text is painted by an icon font: by letters of no alphabet, or by names that the font draws."""
    words = piece.text.strip()
    if not words or len(words) > _LONGEST:
        return False
    fonts = fonts_of(raw, piece.node, words)
    if fonts and all(face_of(font) is not None for font in fonts):
        return False
    if all(_is_private(character) for character in words):
        return True
    named = fonts[0].family if fonts else piece.node.css("font-family").split(",")[0]
    return bool(_ICON_FONT.search(named))


def _is_private(character: str) -> bool:
    code = ord(character)
    return 0xE000 <= code <= 0xF8FF or 0xF0000 <= code <= 0x10FFFF


def _picture(canvas: Canvas, piece: Piece) -> Picture | None:
    node = piece.node
    reach = node.px("font-size") * 0.15
    area = painted_area(node, piece.rect)
    grown = Rect(area.x - reach, area.y - reach, area.width + 2 * reach, area.height + 2 * reach)
    taken = canvas.picture(node, grown, kind="glyphs", scale=_SHARP)
    if taken is None:
        return None
    owner = node.parent if node.pseudo and node.parent else node
    named = _ICON_CLASS.findall(owner.attributes.get("class", ""))
    said = owner.attributes.get("aria-label") or owner.attributes.get("title") or ""
    words = said or (named[-1].replace("-", " ") if named else "")
    return replace(taken, alt=words[:200], link=link_of(node), name="icon")


def painted_area(node: Node, rect: Rect) -> Rect:
    """Return the upright rectangle around what may be turned."""
    box = node.box(rect)
    angle = math.radians(box.rotation)
    wide = abs(box.width * math.cos(angle)) + abs(box.height * math.sin(angle))
    high = abs(box.width * math.sin(angle)) + abs(box.height * math.cos(angle))
    return Rect(box.x + (box.width - wide) / 2, box.y + (box.height - high) / 2, wide, high)
