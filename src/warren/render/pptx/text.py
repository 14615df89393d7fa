"""Paragraphs and runs: painted fonts, spacing, bullets, links."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from warren.render.pptx import seat
from warren.render.pptx.fill import colour, effects, line, text_fill
from warren.render.pptx.libreoffice import completed, spread, untied
from warren.render.pptx.xml import clamped, element, finite, plain
from warren.render.scene.scene import RAISED, Box, Colour, Paragraph, Run

if TYPE_CHECKING:
    from collections.abc import Sequence

    from warren.render.pptx.page import Page

_ALIGN = {"left": "l", "center": "ctr", "right": "r", "justify": "just"}
_BOLD = 600
_FACE = re.compile(r"(?i)\b(thin|hairline|(extra|ultra|semi|demi) ?(light|bold)|light|medium|book|black|heavy|bold)\b")
_NUMBERS = {
    "1.": "arabicPeriod",
    "1)": "arabicParenR",
    "(1)": "arabicParenBoth",
    "1": "arabicPlain",
    "a.": "alphaLcPeriod",
    "a)": "alphaLcParenR",
    "A.": "alphaUcPeriod",
    "A)": "alphaUcParenR",
    "i.": "romanLcPeriod",
    "i)": "romanLcParenR",
    "I.": "romanUcPeriod",
    "I)": "romanUcParenR",
}
_SERIFS = {"LM Roman 10": 18, "Latin Modern Math": 18}
"""Fonts of formulas, which few have: where they are not there, one with serifs stands in."""
_DRAWN = {"•", "◦", "▪"}


def paragraphs(values: Sequence[Paragraph], page: Page, box: Box, alpha: float = 1.0) -> list[Any]:
    """`a:p` elements; a text body needs at least one."""
    made = [_paragraph(each, gap, page, box, alpha) for each, gap in zip(values, seat.gaps(values), strict=True)]
    return made or [element("a:p", None, element("a:endParaRPr", {"lang": page.lang, "sz": 1200}))]


def _paragraph(value: Paragraph, gap: float, page: Page, box: Box, alpha: float) -> Any:
    largest = seat.size_of(value)
    parts: list[Any] = []
    for run in (piece for each in completed(untied(value.runs)) for piece in spread(each, page.scale)):
        for index, words in enumerate(plain(run.text).replace("\r", "").split("\n")):
            if index:
                parts.append(element("a:br", None, _run_style(run, page, box, alpha, largest, is_break=True)))
            if words:
                parts.append(
                    element("a:r", None, _run_style(run, page, box, alpha, largest), element("a:t", text=words))
                )
    if not parts:
        parts = [element("a:endParaRPr", {"lang": page.lang, "sz": _size(page, largest)})]
    return element("a:p", None, _paragraph_style(value, gap, page), *parts)


def _paragraph_style(value: Paragraph, gap: float, page: Page) -> Any:
    indent = page.scale.inset(value.indent) if value.bullet else 0
    attributes = {
        "marL": indent if not value.is_rtl else 0,
        "marR": indent if value.is_rtl else 0,
        "lvl": int(clamped(value.level, 0, 8)) or None,
        "indent": -indent,
        "algn": _ALIGN.get(value.align, "l"),
        "rtl": 1 if value.is_rtl else 0,
    }
    spacing = element("a:spcPct", {"val": round(seat.ratio(value) * 100_000)})
    points = round(clamped(page.scale.points(gap), 0, 1_584) * 100)
    return element(
        "a:pPr",
        attributes,
        element("a:lnSpc", None, spacing),
        element("a:spcBef", None, element("a:spcPts", {"val": points})),
        element("a:spcAft", None, element("a:spcPts", {"val": 0})),
        *_bullet(value),
    )


def _bullet(value: Paragraph) -> list[Any]:
    if not value.bullet:
        return [element("a:buNone")]
    paint = value.bullet_fill if value.bullet_fill is not None else (value.runs[0].fill if value.runs else None)
    shade = paint if isinstance(paint, Colour) else paint.stops[0].colour if paint is not None and paint.stops else None
    made = [element("a:buClr", None, colour(shade))] if shade is not None else [element("a:buClrTx")]
    made.append(element("a:buSzPct", {"val": 100_000}))
    if scheme := _NUMBERS.get(value.bullet):
        start = int(clamped(value.bullet_start, 1, 32_767))
        return [*made, element("a:buFontTx"), element("a:buAutoNum", {"type": scheme, "startAt": start})]
    # The browser draws these itself; in some fonts, as East Asian ones, they are hardly to be seen.
    family = "Arial" if value.bullet in _DRAWN else plain(value.runs[0].family) if value.runs else ""
    made.append(element("a:buFont", {"typeface": family}) if family else element("a:buFontTx"))
    return [*made, element("a:buChar", {"char": plain(value.bullet)[:1] or "•"})]


def _size(page: Page, px: float) -> int:
    """`sz`, hundredths of a point, as PowerPoint bounds it."""
    return round(clamped(page.scale.points(px) * 100, 100, 400_000))


def _run_style(run: Run, page: Page, box: Box, alpha: float, largest: float, *, is_break: bool = False) -> Any:
    size, raised = finite(run.size, 16), None
    if run.baseline:
        size, small = min(size / RAISED, max(largest, size)), size
        raised = round(clamped(run.baseline * small / max(size, 1), -1, 1) * 100_000)
    # A face that the family already names ("Inter Extra Bold") must not be made bold once more.
    is_bold = run.weight >= _BOLD and not _FACE.search(run.family)
    attributes = {
        "lang": page.lang,
        "sz": _size(page, size),
        "b": int(is_bold),
        "i": int(run.italic),
        "u": "sng" if run.underline else "none",
        "strike": "sngStrike" if run.strike else "noStrike",
        "kern": 0,
        "spc": round(clamped(page.scale.points(run.spacing) * 100, -20_000, 20_000)) or None,
        "baseline": raised,
        "dirty": 0,
    }
    return element(
        "a:rPr",
        attributes,
        None if run.outline is None else line(run.outline, page.scale),
        element("a:noFill") if run.is_hollow else text_fill(run.fill, box, alpha),
        None if is_break else effects(run.shadow, page.scale, alpha),
        element("a:highlight", None, colour(run.highlight)) if run.highlight and not is_break else None,
        *_families(run),
        page.link(run.link) if run.link and not is_break else None,
    )


def _families(run: Run) -> list[Any]:
    family, asian = plain(run.family)[:200], plain(run.family_ea or run.family)[:200]
    if not family and not asian:
        return []
    names = (("a:latin", family or asian), ("a:ea", asian), ("a:cs", family or asian))
    return [element(tag, {"typeface": name, "pitchFamily": _SERIFS.get(name)}) for tag, name in names]
