"""The installed faces behind the fonts that the browser painted with: their Office names, and how wide text is."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import uharfbuzz as hb

_LIST = ["fc-list", "--format", "%{postscriptname}\t%{file}\t%{index}\t%{family}\t%{weight}\t%{slant}\n"]
_BOLD_ENOUGH = 600
_SLIDE_INCHES = 40 / 3
"""How wide a slide is written."""


@dataclass(frozen=True, slots=True)
class Painted:
    """A font as the browser names it."""

    family: str
    postscript: str = ""


@dataclass(frozen=True, slots=True)
class Face:
    """A font file's face, by the name that Office programs know it by: a family of at most four styles."""

    file: str
    index: int
    family: str
    is_bold: bool
    is_italic: bool


@lru_cache(maxsize=1)
def _installed() -> dict[str, tuple[str, int]]:
    try:
        listed = subprocess.run(_LIST, capture_output=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return {}
    found: dict[str, tuple[str, int]] = {}
    for line in listed.stdout.decode("utf-8", "replace").splitlines():
        fields = line.split("\t")
        if len(fields) == 6 and fields[0] and fields[2].isdigit():
            found.setdefault(fields[0], (fields[1], int(fields[2]) & 0xFFFF))
    return found


@lru_cache(maxsize=512)
def face_of(painted: Painted) -> Face | None:
    """Return the installed face, or None for one that came with the page."""
    place = _installed().get(painted.postscript)
    if place is None:
        return None
    try:
        face = shaper(*place)[0].face
        family = str(face.get_name(hb.OTNameIdPredefined.FONT_FAMILY) or painted.family)
        style = str(face.get_name(hb.OTNameIdPredefined.FONT_SUBFAMILY) or "").lower()
    except (OSError, ValueError):
        return None
    if family.startswith("."):
        family = painted.family
    return Face(place[0], place[1], family, "bold" in style, "italic" in style or "oblique" in style)


@lru_cache(maxsize=64)
def shaper(file: str, index: int) -> tuple[Any, int, Any]:
    """Return a face to shape text with, its units in an em, and the characters that it has. Raises OSError."""
    face = hb.Face(hb.Blob.from_file_path(file), index)
    return hb.Font(face), face.upem, face.unicodes


def covers(face: Face, character: str) -> bool:
    """Whether the face has a glyph for the character."""
    try:
        return ord(character) in shaper(face.file, face.index)[2]
    except (OSError, ValueError):
        return False


@lru_cache(maxsize=8192)
def advance(face: Face, text: str, *, ligatures: bool = True, grid: int = 0) -> float | None:
    """How wide the text is, in parts of the font size; each letter in whole parts of `grid` an em, if that is given."""
    try:
        font, per_em, _ = shaper(face.file, face.index)
    except (OSError, ValueError):
        return None
    buffer = hb.Buffer()
    buffer.add_str(text)
    buffer.guess_segment_properties()
    font.scale = (grid or per_em, grid or per_em)
    hb.shape(font, buffer, None if ligatures else {"liga": False, "clig": False})
    return float(sum(position.x_advance for position in buffer.glyph_positions)) / (grid or per_em)


def office_width(face: Face, text: str, size: float, slide_width: float, *, ligatures: bool = True) -> float | None:
    """Return how wide the text is in LibreOffice, in pixels of the slide.

    It rounds every advance to whole dots of 600 an inch, and the size too, by way of hundredths of a millimetre: up to
    half a percent of a line, and more than spacing can make good that was worked out without it.
    """
    inch = max(slide_width, 1.0) / _SLIDE_INCHES
    dots = max(round(round(size * 2540 / inch) * 600 / 2540), 1)
    width = advance(face, text, ligatures=ligatures, grid=dots)
    return None if width is None else width * dots * inch / 600


def office_weight(face: Face | None, weight: int) -> int:
    """Return the weight that a program must ask for: bold only where the family's bold face was painted, or faked."""
    if face is None:
        return weight
    if face.is_bold:
        return 700
    named = face.family.lower()
    is_heavy = any(part in named for part in ("black", "heavy", "bold"))
    return 700 if weight >= _BOLD_ENOUGH and not is_heavy else 400
