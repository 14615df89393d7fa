"""The lines of a group as the browser broke them, and whether PowerPoint would break them alike."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field

from warren.render.scene import css
from warren.render.scene.blocks import Group, Piece
from warren.render.scene.scripts import is_east_asian
from warren.render.scene.snapshot import Node, Rect

# The room that a box must leave on each side of the browser's breaks: programs measure text a little differently.
_SLACK = 0.012


@dataclass(slots=True)
class TextLine:
    """One line; `is_hard` says that the page broke it off here."""

    pieces: list[Piece] = field(default_factory=list)
    is_hard: bool = False
    baseline: float = 0.0
    size: float = 0.0
    room: float = 0.0
    """The largest size that is written in it: raised text is written larger than it is shown."""

    @property
    def left(self) -> float:
        """The left end of its first letter."""
        return min(piece.rect.x for piece in self.pieces)

    @property
    def right(self) -> float:
        """The right end of its last letter."""
        return max(piece.rect.right for piece in self.pieces)

    @property
    def top(self) -> float:
        """The top of its highest letters."""
        return min(piece.rect.y for piece in self.pieces)

    @property
    def bottom(self) -> float:
        """The bottom of its lowest letters."""
        return max(piece.rect.bottom for piece in self.pieces)

    @property
    def text(self) -> str:
        """Its words."""
        return "".join(piece.text for piece in self.pieces)


def lines_of(group: Group) -> list[TextLine]:
    """Return the group's lines from the top, without those that are empty at its ends."""
    lines: list[TextLine] = [TextLine()]
    for piece in group.pieces:
        if piece.is_break:
            if not lines[-1].pieces:
                lines[-1].pieces.append(Piece(piece.node, "", piece.rect))
            lines[-1].is_hard = True
            lines.append(TextLine())
        elif lines[-1].pieces and not _is_on(lines[-1], piece):
            lines.append(TextLine([piece]))
        else:
            lines[-1].pieces.append(piece)
    lines = [line for line in lines if line.pieces]
    while lines and not lines[-1].text.strip():
        lines.pop()
    while lines and not lines[0].text.strip():
        lines.pop(0)
    if lines:
        lines[-1].is_hard = False
    for line in lines:
        _trim(line)
    return lines


def _is_on(line: TextLine, piece: Piece) -> bool:
    top = max(line.top, piece.rect.y)
    bottom = min(line.bottom, piece.rect.bottom)
    return bottom - top > 0.5 * min(piece.rect.height, line.bottom - line.top)


def _trim(line: TextLine) -> None:
    """Cut the space that the browser keeps at a line's end but does not show; its width stays out of the box."""
    if len(line.pieces) > 1:
        line.pieces = [
            piece
            for at, piece in enumerate(line.pieces)
            if piece.text.strip() or piece.is_room or 0 < at < len(line.pieces) - 1
        ] or line.pieces[:1]


def columns_of(lines: list[TextLine]) -> list[list[TextLine]]:
    """One line with wide gaps, as of tabs or inline columns, is as many texts as it has parts."""
    if len(lines) != 1:
        return _flowed(lines)
    parts: list[TextLine] = [TextLine()]
    for piece in lines[0].pieces:
        last = parts[-1].pieces[-1] if parts[-1].pieces else None
        if last and piece.rect.x - last.rect.right > 2.5 * max(piece.rect.height, last.rect.height):
            parts.append(TextLine())
        parts[-1].pieces.append(piece)
    return [[part] for part in parts if part.text.strip()] or [lines]


def _flowed(lines: list[TextLine]) -> list[list[TextLine]]:
    """Return the columns of a text that goes on further up."""
    found: list[list[TextLine]] = [lines[:1]]
    for line in lines[1:]:
        if line.top < found[-1][-1].top - 1:
            found.append([])
        found[-1].append(line)
    step = _column_step(lines[0].pieces[0].node) if len(found) > 1 else 0.0
    for at, column in enumerate(found):
        for piece in (piece for line in column for piece in line.pieces):
            # WHY: the snapshot has all pieces of a text in the column where it begins.
            piece.rect = Rect(piece.rect.x + at * step, piece.rect.y, piece.rect.width, piece.rect.height)
    return found


def _column_step(node: Node) -> float:
    """Return how far apart the columns are of the element that a text flows in."""
    for owner in [node, *node.ancestors()]:
        counted, wide = css.number(owner.css("column-count")), owner.px("column-width")
        if counted < 1 and wide < 1:
            continue
        gap = owner.px("column-gap") if "px" in owner.css("column-gap") else owner.px("font-size")
        inner = owner.rect.width - owner.px("padding-left") - owner.px("padding-right")
        count = counted or max(1.0, (inner + gap) // (wide + gap))
        return (inner + gap) / count
    return 0.0


def soft_width(lines: list[TextLine]) -> float | None:
    """Return a width at which a program breaks the text as the browser did; None where it must be broken by hand."""
    if any(piece.is_room for line in lines for piece in line.pieces):
        return None
    least = max(line.right - line.left for line in lines)
    most = 1e9
    for line, following in itertools.pairwise(lines):
        if line.is_hard:
            continue
        word = _first_word(following)
        if word is None:
            return None
        most = min(most, line.right - line.left + word)
    low, high = least * (1 + _SLACK) + 1, most * (1 - _SLACK) - 1
    return None if low > high else min(high, max(low, (least + min(most, least * 1.2)) / 2))


def _first_word(line: TextLine) -> float | None:
    """How wide the first unbreakable part of a line is, with the space before it."""
    first = line.pieces[0]
    text = first.text.lstrip()
    if not text or not first.text:
        return None
    if any(is_east_asian(character) for character in line.text):
        # WHY: programs disagree on which East Asian punctuation may begin or end a line.
        return None
    word = text.split(" ", 1)[0]
    if len(word) == len(text.rstrip()) and len(line.pieces) > 1 and not text.endswith(" "):
        return None
    if "-" in word or "/" in word:
        return None
    per_character = first.rect.width / max(1, len(first.text))
    return per_character * (len(word) * 0.9 + 0.6)
