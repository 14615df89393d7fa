"""Scripts of a text: they decide its fonts and its line breaks."""

from __future__ import annotations

import unicodedata
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from warren.render.scene.raw import FontKey
    from warren.render.scene.snapshot import Node

_MOST_SYMBOLS = 12
_RANGES = (
    (0x0590, 0x05FF, "hebrew"),
    (0x0600, 0x08FF, "arabic"),
    (0x0900, 0x0DFF, "indic"),
    (0x0E00, 0x0EFF, "thai"),
    (0x1100, 0x11FF, "hangul"),
    (0x2190, 0x2BFF, "symbol"),
    (0x2E80, 0x303F, "han"),
    (0x3040, 0x30FF, "kana"),
    (0x3100, 0x312F, "han"),
    (0x3130, 0x318F, "hangul"),
    (0x3190, 0xA4CF, "han"),
    (0xAC00, 0xD7AF, "hangul"),
    (0xF900, 0xFAFF, "han"),
    (0xFB1D, 0xFB4F, "hebrew"),
    (0xFB50, 0xFDFF, "arabic"),
    (0xFE30, 0xFE4F, "han"),
    (0xFE70, 0xFEFF, "arabic"),
    (0xFF00, 0xFFEF, "han"),
    (0x1F000, 0x1FAFF, "symbol"),
    (0x20000, 0x3FFFF, "han"),
)
_EAST_ASIAN = {"han", "kana", "hangul"}


def kind(character: str) -> str:
    """Return the kind of one character; what every font has is `latin`."""
    code = ord(character)
    if code < 0x0590:
        return "latin"
    for first, last, name in _RANGES:
        if first <= code <= last:
            return name
    if 0x2000 <= code <= 0x206F or 0x1E00 <= code <= 0x1EFF:
        return "latin"
    return "symbol" if unicodedata.category(character)[0] in "SC" else "latin"


def is_east_asian(character: str) -> bool:
    """Whether lines may break beside the character, and East Asian fonts are asked for it."""
    return kind(character) in _EAST_ASIAN


def kinds(text: str) -> str:
    """Return the kinds of a text, in order; symbols are named one by one, because each may have its own font."""
    found: set[str] = set()
    for character in set(text[:4000]):
        name = kind(character)
        found.add(character if name == "symbol" else name)
    if len(found) > _MOST_SYMBOLS + len(_RANGES):
        found = {name for name in found if len(name) > 1} | {"symbol"}
    return " ".join(sorted(found))


def font_key(node: Node, text: str) -> FontKey:
    """Return what decides the fonts of this text in this node."""
    return (node.css("font-family"), node.css("font-weight"), node.css("font-style"), kinds(text))


def shorthand(node: Node) -> str:
    """Return the CSS font of a node, for measuring in a canvas."""
    style = "italic" if node.css("font-style") != "normal" else "normal"
    return f"{style} {node.css('font-weight')} {node.css('font-size')} {node.css('font-family')}"
