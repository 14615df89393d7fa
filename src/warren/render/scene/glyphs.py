"""Letters of formulas in fonts that only the page has, by the installed fonts of the same design.

KaTeX and MathJax bring their own cuts of Computer Modern; Latin Modern, which the image has, is another. Where it has
no such letter in such a size, as for tall brackets and large sums, the outline of one of its own tall ones is taken.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from warren.render.scene.fonts import Face, Painted, covers, face_of, shaper
from warren.render.scene.paths import Point, curve

MATH = Painted("Latin Modern Math", "LatinModernMath-Regular")
_FACES = {
    ("", False, False): Painted("LM Roman 10", "LMRoman10-Regular"),
    ("", True, False): Painted("LM Roman 10", "LMRoman10-Bold"),
    ("", False, True): Painted("LM Roman 10", "LMRoman10-Italic"),
    ("", True, True): Painted("LM Roman 10", "LMRoman10-BoldItalic"),
    ("sans", False, False): Painted("LM Sans 10", "LMSans10-Regular"),
    ("sans", True, False): Painted("LM Sans 10", "LMSans10-Bold"),
    ("mono", False, False): Painted("LM Mono 10", "LMMono10-Regular"),
}
_OWN = re.compile(r"^(katex|mathjax)_(\w+)", re.IGNORECASE)
_KINDS = {
    "sansserif": "sans",
    "typewriter": "mono",
    "ams": "double",
    "script": "script",
    "caligraphic": "script",
    "fraktur": "fraktur",
}
_ALPHABETS = {"double": "DOUBLE-STRUCK", "script": "SCRIPT", "fraktur": "FRAKTUR"}
_PRIVATE = {"\ue020": "/", "\ue010": "\u221a"}
"""Letters that only KaTeX's fonts have: the stroke through a sign that is not so."""


@dataclass(frozen=True, slots=True)
class Glyphs:
    """How letters are written: the characters, the face that has them, and the style that is asked of it."""

    text: str
    face: Face
    is_bold: bool
    is_italic: bool


def glyphs_of(painted: Painted, text: str, *, is_bold: bool, is_italic: bool) -> Glyphs | None:
    """Return letters of a library's own font in an installed face; None for other fonts, and where none has them."""
    own = _OWN.match(painted.family)
    if own is None:
        return None
    kind = _KINDS.get(own[2].lower(), "")
    is_bold = is_bold or "bold" in painted.postscript.lower()
    is_italic = is_italic or "italic" in painted.postscript.lower()
    words = "".join(_PRIVATE.get(letter, letter) for letter in text)
    if kind in _ALPHABETS:
        words = "".join(_styled(letter, _ALPHABETS[kind]) for letter in words)
        is_italic = False
    wish = (kind if kind in {"sans", "mono"} else "", is_bold, is_italic)
    for wished in (_FACES.get(wish), _FACES.get((wish[0], False, False)), MATH):
        face = face_of(wished) if wished is not None else None
        if wished is MATH and is_italic:
            # It has no slanted face, but slanted letters.
            words, is_italic = "".join(_slanted(letter) for letter in words), False
        if face is not None and all(covers(face, letter) for letter in words):
            return Glyphs(words, face, is_bold=is_bold, is_italic=is_italic)
    return None


def _styled(letter: str, alphabet: str) -> str:
    """Return a letter of another alphabet, if Unicode has it: some are older than their alphabets."""
    if not letter.isascii() or not letter.isalpha():
        return letter
    size = "CAPITAL" if letter.isupper() else "SMALL"
    for name in (
        f"MATHEMATICAL {alphabet} {size} {letter}",
        f"{alphabet} {size} {letter}".replace("FRAKTUR", "BLACK-LETTER"),
    ):
        try:
            return unicodedata.lookup(name)
        except KeyError:
            continue
    return letter


def _slanted(letter: str) -> str:
    name = unicodedata.name(letter, "")
    if not name.startswith("GREEK"):
        return _styled(letter, "ITALIC")
    rest = name.removeprefix("GREEK ").replace("LETTER ", "").replace("LUNATE ", "")
    try:
        return unicodedata.lookup(f"MATHEMATICAL ITALIC {rest}")
    except KeyError:
        return letter


def ink_of(face: Face, letter: str) -> tuple[float, float, float, float] | None:
    """Return how far a letter's ink reaches from where it stands: left, up, right, down, in parts of the size."""
    try:
        font, per_em, _ = shaper(face.file, face.index)
        font.scale = (per_em, per_em)
        glyph = font.get_nominal_glyph(ord(letter))
        extents = font.get_glyph_extents(glyph) if glyph is not None else None
    except (OSError, ValueError):
        return None
    if extents is None or not extents.height:
        return None
    left, top = extents.x_bearing / per_em, extents.y_bearing / per_em
    return -left, top, left + extents.width / per_em, -(top + extents.height / per_em)


@lru_cache(maxsize=256)
def tall_outline(letter: str, shape: float) -> tuple[tuple[Point, ...], ...]:
    """Return the outline of the letter's variant that is as slender as `shape` (width by height), in a unit box."""
    face = face_of(MATH)
    if face is None or not covers(face, letter):
        return ()
    try:
        font, per_em, _ = shaper(face.file, face.index)
        font.scale = (per_em, per_em)
        plain = font.get_nominal_glyph(ord(letter))
        named = [plain, *(one.glyph for one in font.get_math_glyph_variants(plain, "ttb"))]
        pen = _Pen()
        font.draw_glyph_with_pen(min(named, key=lambda one: abs(_slender(font, one) - shape)), pen)
        return _in_box([each for each in pen.found if len(each) > 2])
    except (OSError, ValueError, AttributeError, TypeError):
        return ()


def _slender(font: Any, glyph: int) -> float:
    extents = font.get_glyph_extents(glyph)
    return abs(extents.width / extents.height) if extents is not None and extents.height else 1e9


class _Pen:
    """Takes down what a font draws, in the words of fontTools' pens."""

    def __init__(self) -> None:
        self.found: list[list[Point]] = []

    def moveTo(self, point: Point) -> None:  # noqa: N802 - the caller's word
        self.found.append([point])

    def lineTo(self, point: Point) -> None:  # noqa: N802 - as above
        self.found[-1].append(point)

    def curveTo(self, *points: Point) -> None:  # noqa: N802 - as above
        self.found[-1] += curve([self.found[-1][-1], *points])

    def qCurveTo(self, *points: Point) -> None:  # noqa: N802 - as above
        self.found[-1] += curve([self.found[-1][-1], *points])

    def closePath(self) -> None:  # noqa: N802 - as above
        """Every line is closed here."""

    endPath = closePath  # noqa: N815 - as above


def _in_box(drawn: list[list[Point]]) -> tuple[tuple[Point, ...], ...]:
    """Return the lines in a unit box; none where one lies in another, and is a hole."""
    xs = [x for line in drawn for x, _ in line]
    ys = [y for line in drawn for _, y in line]
    if not xs or max(xs) <= min(xs) or max(ys) <= min(ys) or any(_is_in(a, b) for a in drawn for b in drawn):
        return ()
    wide, high = max(xs) - min(xs), max(ys) - min(ys)
    return tuple(tuple(((x - min(xs)) / wide, (max(ys) - y) / high) for x, y in line) for line in drawn)


def _is_in(inner: list[Point], outer: list[Point]) -> bool:
    return inner is not outer and all(
        min(point[at] for point in outer) <= min(point[at] for point in inner)
        and max(point[at] for point in inner) <= max(point[at] for point in outer)
        for at in (0, 1)
    )
