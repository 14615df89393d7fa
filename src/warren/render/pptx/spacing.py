"""Letter-spacing on LibreOffice's grid: whole hundredths of a millimetre, which add up over a long line.

A run whose spacing lies between two such steps is cut in two, one with the lower and one with the higher step, so that
its whole width is right to a pixel; PowerPoint, which has no such grid, shows no difference.
"""

from __future__ import annotations

import math
import re
from dataclasses import replace
from itertools import zip_longest
from typing import TYPE_CHECKING

from warren.render.pptx.xml import Scale, finite

if TYPE_CHECKING:
    from warren.render.scene.scene import Run

_STEP = 360
"""EMU in a hundredth of a millimetre."""
_WORTH = 0.6
"""CSS pixels that a line must be wrong by before its run is cut."""
_WIDEST = 0.6
"""CSS pixels: more than that is not there to lock a width, and is lost at the end of a part."""
_CUTS = re.compile("(?<= )(?=[^ ])|(?<=[\u3040-\u9fff])(?=[\u3040-\u9fff])")


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
    first, last = (
        replace(run, text=run.text[:cut], spacing=(low + 1) * step),
        replace(run, text=run.text[cut:], spacing=low * step),
    )
    return [first, last]
