"""Positions of text lines in a PowerPoint text box that match where the browser painted them.

A line is 1.2 times its largest size high, times the spacing `r` (`a:spcPct`), whatever the font. LibreOffice puts the
baseline 0.2 em above the bottom of that line (below r = 1: a fifth of the line); PowerPoint puts it at the font's own
share of the line, which is 0.03 to 0.06 em higher in single lines and 0.1 em in airy paragraphs. Boxes are seated by
the first: it can be measured here, it is off by no more than that in PowerPoint, and the distance from line to line is
the same in both.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from warren.render.pptx.xml import clamped, finite

if TYPE_CHECKING:
    from collections.abc import Sequence

    from warren.render.scene.scene import Paragraph

LINE = 1.2
_DESCENT = 0.2


def ratio(paragraph: Paragraph) -> float:
    """Return the spacing to write: 1 is 100 %. A single line has no pitch, and always gets 100 %."""
    size = size_of(paragraph)
    if paragraph.pitch <= 0 or size <= 0:
        return 1.0
    return clamped(paragraph.pitch / (LINE * size), 0.2, 10)


def size_of(paragraph: Paragraph) -> float:
    """Return the size that the spacing is a multiple of: the largest in most lines."""
    if paragraph.first_size > 0:
        return paragraph.first_size
    return max(
        (finite(run.size) for run in paragraph.runs if run.text.strip() and not run.baseline), default=0.0
    ) or max((finite(run.size) for run in paragraph.runs), default=16.0)


def above(paragraph: Paragraph) -> float:
    """From the top of its first line to the baseline, CSS pixels."""
    return height(paragraph) - below(paragraph)


def below(paragraph: Paragraph) -> float:
    """From the last baseline to the bottom of the last line."""
    return _DESCENT * size_of(paragraph) * (1.0 if ratio(paragraph) >= 1 else LINE * ratio(paragraph))


def height(paragraph: Paragraph) -> float:
    """Of one line."""
    return LINE * ratio(paragraph) * size_of(paragraph)


def lines_of(paragraph: Paragraph) -> int:
    """How many lines it has on the page."""
    return max(paragraph.lines, 1 + sum(run.text.count("\n") for run in paragraph.runs))


def gaps(paragraphs: Sequence[Paragraph]) -> list[float]:
    """Return the space to write above each paragraph; none above the first."""
    spaces = [0.0] * len(paragraphs)
    for index in range(1, len(paragraphs)):
        last, this = paragraphs[index - 1], paragraphs[index]
        space = this.space_before
        if this.first_baseline > 0 and last.first_baseline > 0:
            bottom = last.first_baseline + (lines_of(last) - 1) * height(last) + below(last)
            space = this.first_baseline - above(this) - bottom
        spaces[index] = max(finite(space), 0.0)
    return spaces


def total(paragraphs: Sequence[Paragraph]) -> float:
    """Return the height of all their lines and the space between them."""
    return sum(lines_of(each) * height(each) for each in paragraphs) + sum(gaps(paragraphs))
