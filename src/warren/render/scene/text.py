"""Groups of text as text boxes: lines, paragraphs, baselines, alignment and bullets."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from warren.render.scene.lines import TextLine, columns_of, lines_of, soft_width
from warren.render.scene.runs import blank, runs_of
from warren.render.scene.scene import RAISED, Paragraph, Run, TextBox
from warren.render.scene.scripts import shorthand
from warren.render.scene.snapshot import Node, Rect, turned

if TYPE_CHECKING:
    from warren.render.scene.blocks import Group, Piece
    from warren.render.scene.raw import RawSlide

_COUNTED = re.compile(r"^(\d+|[a-zA-Z]|[ivxlcdm]+|[IVXLCDM]+)([.)])$")
_ROMAN = {"i": 1, "v": 5, "x": 10, "l": 50, "c": 100, "d": 500, "m": 1000}
# Closer than this two baselines are the same, and two pitches.
_SAME = 1.0


@dataclass(slots=True)
class Laid:
    """Paragraphs and where they are painted."""

    paragraphs: tuple[Paragraph, ...]
    rect: Rect
    lines: int
    wraps: bool


def boxes_of(raw: RawSlide, group: Group, *, is_title: bool = False) -> list[TextBox]:
    """Return the text boxes of a group: one, unless wide gaps cut its only line into columns."""
    made: list[TextBox] = []
    for lines in columns_of(lines_of(group)):
        laid = laid_out(raw, group, lines, has_bullet=not made, is_title=is_title)
        if laid is None:
            continue
        made.append(
            TextBox(
                box=turned(group.frame or laid.rect, group.turn),
                paragraphs=laid.paragraphs,
                first_baseline=laid.paragraphs[0].first_baseline,
                lines=laid.lines,
                is_title=is_title and not made,
                wraps=laid.wraps,
                is_vertical=group.is_vertical,
                name=words_of(laid.paragraphs)[:40],
            )
        )
    return made


def words_of(paragraphs: tuple[Paragraph, ...]) -> str:
    """Return the text with single spaces."""
    return " ".join("".join(run.text for paragraph in paragraphs for run in paragraph.runs).split())


def laid_out(
    raw: RawSlide, group: Group, lines: list[TextLine], *, has_bullet: bool = True, is_title: bool = False
) -> Laid | None:
    """Lines as paragraphs, measured from the top left of the rectangle around them."""
    if not lines:
        return None
    for line in lines:
        measure(raw, line)
    align = alignment(group.block)
    is_even = align != "left" or all(line.left - lines[0].left < 0.15 * line.size for line in lines[1:])
    width = soft_width(lines) if len(lines) > 1 and is_even else None
    if align == "justify":
        # WHY: a line that is broken by hand is not justified, and one that is has room for nothing else.
        align = "left" if width is None or len(lines) < 2 else "justify"
        width = max(line.right - line.left for line in lines) if align == "justify" else None
    left, right = min(line.left for line in lines), max(line.right for line in lines)
    top, bottom = lines[0].top, max(line.bottom for line in lines)
    rect = _widened(Rect(left, top, right - left, bottom - top), align, width)
    if is_title and len(lines) == 1 and align == "left":
        # WHY: programs wrap titles whatever they are told; a title may be as wide as its block.
        rect = Rect(rect.x, rect.y, max(rect.width, group.block.rect.right - rect.x), rect.height)
    mark = group.bullet if has_bullet and align in {"left", "right"} else None
    if mark is not None:
        rect = rect.union(Rect(mark.rect.x, rect.y, mark.rect.width, rect.height))
    made: list[Paragraph] = []
    if width is not None:
        # WHY: what wraps by itself has one pitch, whatever is raised in it; programs then show that smaller.
        for line in lines:
            line.room = line.size
    for part in _paragraphs(lines):
        above = made[-1] if made else None
        made.append(_paragraph(raw, group, part, rect, align, is_soft=width is not None, above=above))
    if mark is not None:
        made[0] = _bulleted(raw, made[0], mark, left - rect.x if align == "left" else rect.right - right)
    return Laid(tuple(made), rect, len(lines), width is not None)


def _widened(rect: Rect, align: str, width: float | None) -> Rect:
    if width is None or width <= rect.width:
        return rect
    more = width - rect.width
    shift = {"center": more / 2, "right": more}.get(align, 0.0)
    return Rect(rect.x - shift, rect.y, width, rect.height)


def alignment(block: Node) -> str:
    """Physical alignment."""
    asked = block.css("text-align")
    if asked in {"start", "end", ""}:
        is_left = (block.css("direction") == "rtl") == (asked == "end")
        return "left" if is_left else "right"
    physical = asked.removeprefix("-webkit-")
    return physical if physical in {"center", "right", "justify"} else "left"


def measure(raw: RawSlide, line: TextLine) -> None:
    """Find the line's baseline: that of its largest text."""
    largest = max(line.pieces, key=lambda piece: (bool(piece.text.strip()), piece.node.px("font-size")))
    line.size = largest.node.px("font-size")
    line.baseline = baseline_of(raw, largest)
    raised = [piece.node.px("font-size") / RAISED for piece in line.pieces if _rise(raw, line, piece)]
    line.room = max(line.size, *raised, 0.0)


def _rise(raw: RawSlide, line: TextLine, piece: Piece) -> float:
    """How far a piece is raised above its line, as a part of its own size."""
    rise, size = line.baseline - baseline_of(raw, piece), piece.node.px("font-size")
    is_raised = not piece.is_room and piece.text.strip() and size and abs(rise) > 0.12 * line.size
    return rise / size if is_raised else 0.0


def baseline_of(raw: RawSlide, piece: Piece) -> float:
    """Where a piece's letters stand."""
    known = raw.metrics.get(shorthand(piece.node))
    ascent, descent = known or (0.8, 0.2)
    whole = ascent + descent
    return piece.rect.y + (ascent / whole if whole > 0 else 0.8) * piece.rect.height


def _paragraphs(lines: list[TextLine]) -> list[list[TextLine]]:
    """Lines of one pitch and size go together."""
    made: list[list[TextLine]] = [[lines[0]]]
    for line in lines[1:]:
        current = made[-1]
        step = line.baseline - current[-1].baseline
        same_size = abs(line.size - current[-1].size) < 0.5 and abs(line.room - current[-1].room) < 0.5
        pitch = current[-1].baseline - current[-2].baseline if len(current) > 1 else step
        if same_size and abs(step - pitch) <= _SAME and 0 < step < 4 * line.size:
            current.append(line)
        else:
            made.append([line])
    return made


def _paragraph(
    raw: RawSlide,
    group: Group,
    lines: list[TextLine],
    rect: Rect,
    align: str,
    *,
    is_soft: bool,
    above: Paragraph | None,
) -> Paragraph:
    runs: list[Run] = []
    left = rect.x if group.bullet is None else min(line.left for line in lines)
    for at, line in enumerate(lines):
        indent = line.left - left
        if align == "left" and indent > 0.15 * line.size and line.text.strip():
            runs.append(blank(raw, line.pieces[0], indent))
        runs += _line_runs(raw, line, is_loose=align == "justify")
        if at < len(lines) - 1 and runs:
            is_break = line.is_hard or not is_soft
            last = runs[-1]
            ends_in_space = last.text.endswith((" ", "\u3000"))
            glue = "\n" if is_break else "" if ends_in_space else " "
            runs[-1] = replace(last, text=(last.text.rstrip(" ") if is_break else last.text) + glue)
    pitch = (lines[-1].baseline - lines[0].baseline) / (len(lines) - 1) if len(lines) > 1 else 0.0
    first = lines[0].baseline - rect.y
    made = Paragraph(
        runs=joined(runs),
        align=align,
        is_rtl=group.block.css("direction") == "rtl",
        pitch=pitch,
        first_baseline=first,
        first_size=lines[0].room,
        lines=len(lines),
    )
    return replace(made, space_before=_space(above, made)) if above else made


def _space(above: Paragraph, below: Paragraph) -> float:
    """Between two line boxes of 1.2 em, or a pitch, whose letters stand 0.2 em above their ends."""
    last = above.first_baseline + above.pitch * (above.lines - 1) + 0.2 * above.first_size
    first = below.first_baseline - ((below.pitch or 1.2 * below.first_size) - 0.2 * below.first_size)
    return max(0.0, first - last)


def _line_runs(raw: RawSlide, line: TextLine, *, is_loose: bool = False) -> list[Run]:
    made: list[Run] = []
    is_left = line.pieces[0].node.css("direction") != "rtl"
    before = 0.0
    for at, piece in enumerate(line.pieces):
        following = line.pieces[at + 1] if at + 1 < len(line.pieces) else None
        gap = following.rect.x - piece.rect.right if following and is_left else 0.0
        gap = gap if abs(gap) > 0.6 and -0.5 * line.size < gap < 12 * line.size else 0.0
        raised = _rise(raw, line, piece)
        # WHY: a gap before a space widens that space; it must not become one more.
        goes_on = bool(following and following.text.startswith(" ") and not piece.text.endswith(" "))
        runs = runs_of(raw, piece, gap=0.0 if goes_on else gap, is_loose=is_loose)
        if before and runs:
            first = runs[0]
            space = replace(first, text=" ", spacing=first.spacing + before)
            runs[:1] = [space, *([replace(first, text=first.text[1:])] if len(first.text) > 1 else [])]
        before = gap if goes_on else 0.0
        made += [replace(run, baseline=raised) for run in runs] if raised else runs
    return made


def joined(runs: list[Run]) -> tuple[Run, ...]:
    """Neighbours of one style as one run, so that a sentence is one piece to edit."""
    made: list[Run] = []
    for run in runs:
        last = made[-1] if made else None
        if last and _is_alike(last, run):
            total = len(last.text) + len(run.text)
            spacing = (last.spacing * len(last.text) + run.spacing * len(run.text)) / total if total else 0.0
            made[-1] = replace(last, text=last.text + run.text, spacing=spacing)
        elif run.text:
            made.append(run)
    return tuple(made)


def _is_alike(first: Run, second: Run) -> bool:
    if abs(first.spacing - second.spacing) > max(0.006 * first.size, 0.02):
        return False
    return replace(first, text="", spacing=0.0) == replace(second, text="", spacing=0.0)


def _bulleted(raw: RawSlide, paragraph: Paragraph, mark: Piece, indent: float) -> Paragraph:
    text = mark.text.strip()
    runs = runs_of(raw, replace(mark, text=text or "•"))
    counted = _COUNTED.match(text)
    fill = runs[0].fill if runs else None
    if not counted:
        return replace(paragraph, bullet=text[:2] or "•", bullet_fill=fill, indent=max(0.0, indent))
    word, end = counted.groups()
    if word.isdigit():
        kind, start = "1", int(word)
    elif mark.node.css("list-style-type").endswith("roman"):
        kind = "i" if word.islower() else "I"
        start = _roman(word.lower())
    else:
        kind = "a" if word.islower() else "A"
        start = ord(word.lower()[0]) - ord("a") + 1
    return replace(
        paragraph,
        runs=_numbered(paragraph.runs, runs),
        bullet=kind + end,
        bullet_start=max(1, min(start, 32767)),
        bullet_fill=fill,
        indent=max(0.0, indent),
    )


def _numbered(runs: tuple[Run, ...], mark: list[Run]) -> tuple[Run, ...]:
    """Return the runs, behind an invisible one where the number has another style: programs take that of the first."""
    first, number = (runs[0] if runs else None), (mark[0] if mark else None)
    if first is None or number is None or (first.weight, first.italic) == (number.weight, number.italic):
        return runs
    return (replace(number, text="\u200b", size=first.size, spacing=0.0, link=""), *runs)


def _roman(word: str) -> int:
    total = 0
    for letter, following in zip(word, word[1:] + " ", strict=True):
        value = _ROMAN.get(letter, 0)
        total += -value if _ROMAN.get(following, 0) > value else value
    return total
