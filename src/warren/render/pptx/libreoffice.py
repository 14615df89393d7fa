"""Runs of text corrected for LibreOffice; PowerPoint shows no difference, or a narrower space.

East Asian beside other letters: LibreOffice widens the last piece of text before such a boundary by a fifth of that
piece's own height. So that piece is made small: the space at the boundary, at a size at which space and gap together
are as wide as the page's space, or else a zero-width space of one point.

Letter-spacing: LibreOffice has whole hundredths of a millimetre, which add up over a long line. A run whose spacing
lies between two such steps is cut in two, one with the lower and one with the higher step, so that its whole width is
right to a pixel.
"""

from __future__ import annotations

import math
import re
from dataclasses import replace
from itertools import zip_longest
from typing import TYPE_CHECKING

from warren.render.pptx.xml import Scale, clamped, finite

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from warren.render.scene.scene import Run

_ASIAN = re.compile("[\u1100-\u11ff\u2e80-\ua4cf\ua960-\ua97f\uac00-\ud7ff\uf900-\ufaff\ufe30-\ufe4f\uff00-\uffef]")
# What LibreOffice counts to the letters before it.
_WEAK = re.compile("[ \u00a0\u2000-\u2bff\U0001f000-\U0001faff]")
_SPACES = {" ", "\u00a0"}
_GAP, _SPACE, _BOLD_SPACE = 0.24, 0.28, 0.235
"""Parts of the size. Spaces of most fonts are about as wide, and narrower in bold ones."""
_HEAVY = re.compile("(?i)bold|black|heavy")
_BOLD = 600
_JOINT, _JOINT_SIZE = "\u200b", 2.0

_STEP = 360
"""EMU in a hundredth of a millimetre."""
_WORTH = 0.6
"""CSS pixels that a line must be wrong by before its run is cut."""
_WIDEST = 0.6
"""CSS pixels: more than that is not there to lock a width, and is lost at the end of a part."""
_CUTS = re.compile("(?<= )(?=[^ ])|(?<=[\u3040-\u9fff])(?=[\u3040-\u9fff])")

Letter = tuple[str, int, bool]
"""A character, the number of its run, and whether it is the last before a boundary."""


def untied(runs: Sequence[Run]) -> list[Run]:
    """Return the runs, with what lies at boundaries of scripts in small runs of its own."""
    if not any(_ASIAN.search(run.text) for run in runs):
        return list(runs)
    made: list[Run] = []
    held, words = -1, ""
    for letter, number, is_last in _letters(runs):
        is_narrow = is_last and letter in _SPACES
        if words and (number != held or is_narrow):
            made.append(replace(runs[held], text=words))
            words = ""
        held = number
        if is_narrow:
            made.append(_narrow(runs[number], letter))
            continue
        words += letter
        if is_last:
            made += [replace(runs[number], text=words), _joint(runs[number])]
            words = ""
    return [*made, replace(runs[held], text=words)] if words else made


def _narrow(run: Run, letter: str) -> Run:
    """Return a space that is, with the gap, as wide as on the page, where two letters are followed by spacing."""
    wide = _BOLD_SPACE if run.weight >= _BOLD or _HEAVY.search(run.family) else _SPACE
    share = (wide + 2 * finite(run.spacing) / max(run.size, 1.0)) / (wide + _GAP)
    return replace(run, text=letter, size=run.size * clamped(share, 0.1, 1), spacing=0.0)


def _joint(run: Run) -> Run:
    return replace(run, text=_JOINT, size=_JOINT_SIZE, underline=False, strike=False, highlight=None, spacing=0.0)


def _letters(runs: Sequence[Run]) -> Iterator[Letter]:
    """Go through all letters, knowing of each whether another script begins behind it."""
    before: bool | None = None
    held: tuple[str, int] | None = None
    for number, run in enumerate(runs):
        for letter in run.text:
            script = before if _WEAK.match(letter) else bool(_ASIAN.match(letter))
            if held is not None:
                is_boundary = letter != "\n" and before is not None and script is not None and script != before
                yield (*held, is_boundary)
            held, before = (letter, number), None if letter == "\n" else script
    if held is not None:
        yield (*held, False)


def completed(runs: list[Run]) -> list[Run]:
    """Return the runs with the spacing that LibreOffice leaves out behind the last letter of each but the last."""
    made = []
    for run, following in zip_longest(runs, runs[1:]):
        count = len(run.text)
        is_within = following is not None and count > 1 and not run.text.endswith("\n") and following.text[:1] != "\n"
        made.append(replace(run, spacing=run.spacing * count / (count - 1)) if is_within and run.spacing else run)
    return made


def spread(run: Run, scale: Scale) -> list[Run]:
    """Return the run, or its two parts."""
    step = _STEP / scale.emu_per_px
    count, spacing = len(run.text), finite(run.spacing)
    wanted = spacing / step
    if count * abs(wanted - round(wanted)) * step < _WORTH or abs(spacing) > _WIDEST or "\n" in run.text:
        return [run]
    low = math.floor(wanted)
    higher = round((wanted - low) * count)
    places = [match.start() for match in _CUTS.finditer(run.text)]
    cut = min(places, key=lambda place: abs(place - higher), default=0)
    if abs(cut - higher) * step > _WORTH or not 0 < cut < count:
        return [replace(run, spacing=round(wanted) * step)]
    return [
        replace(run, text=run.text[:cut], spacing=(low + 1) * step),
        replace(run, text=run.text[cut:], spacing=low * step),
    ]
