"""Which pieces of text belong together: one group for each block of the page, with its bullet."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from dataclasses import replace as copy_of

from warren.render.scene import css
from warren.render.scene.formula import is_formula, room_of
from warren.render.scene.scripts import is_east_asian
from warren.render.scene.snapshot import Node, Rect, around, unturned

_ATOMIC = {"inline-block", "inline-flex", "inline-grid", "inline-table"}
_ITEM_PARENTS = ("flex", "grid", "inline-flex", "inline-grid")
_SPACES = re.compile(r"[ \t\r\n\f]+")
_NOT_TEXT = {"script", "style", "title", "desc", "noscript", "template", "option", "optgroup", "metadata"}


@dataclass(slots=True)
class Piece:
    """Text of one node on one line; `is_break` is a line break that the page asks for."""

    node: Node
    """The element that styles it."""
    text: str
    rect: Rect
    is_break: bool = False
    is_room: bool = False
    """Left empty, for a formula that is painted there."""


@dataclass(slots=True)
class Group:
    """The text of one block, up to the next block inside it."""

    block: Node
    pieces: list[Piece] = field(default_factory=list)
    parts: list[tuple[int, Group]] = field(default_factory=list)
    """Inline blocks, and before which piece they stand."""
    bullet: Piece | None = None
    turn: float = 0.0
    is_vertical: bool = False
    frame: Rect | None = None
    """Where vertical text is painted."""

    @property
    def has_text(self) -> bool:
        """Whether anything is to be read."""
        return any(piece.text.strip() for piece in self.pieces)

    @property
    def order(self) -> tuple[int, int]:
        """Its place in the order of painting: after the boxes in its lines."""
        return max((piece.node.paint, piece.node.order) for piece in self.pieces)


def groups_of(root: Node) -> list[Group]:
    """Every group of the slide, in tree order."""
    found: list[Group] = []
    _walk(root, root, found)
    kept = [group for group in found if group.has_text]
    for group in kept:
        _settle_room(group)
    _adopt_bullets(kept)
    return [group for group in kept if group.has_text]


def _walk(block: Node, node: Node, found: list[Group]) -> None:
    """Collect the groups of a block: `found[-1]` is open while inline content follows inline content."""
    group = Group(block, turn=block.turn)
    found.append(group)
    is_items = block.css("display") in _ITEM_PARENTS
    stack = list(reversed(node.children))
    while stack:
        child = stack.pop()
        if child.name in _NOT_TEXT or child.is_svg:
            continue
        if child.text is not None:
            if is_items and child.parent is block and group.pieces:
                group = Group(block, turn=block.turn)
                found.append(group)
            group.pieces += pieces_of(child)
        elif is_formula(child):
            if child.css("display").startswith("block"):
                group = Group(block, turn=block.turn)
                found.append(group)
            else:
                group.pieces += [Piece(child.parent or child, "\u00a0", rect, is_room=True) for rect in room_of(child)]
        elif child.pseudo == "marker":
            _mark(group, child)
        elif child.is_inline:
            stack.extend(reversed(child.children))
        else:
            is_out = child.css("position") in {"absolute", "fixed"} or child.css("float") not in {"none", ""}
            before = len(found)
            _walk(child, child, found)
            if child.css("display") in _ATOMIC and not is_out and not is_items:
                _note_part(group, found[before:])
            elif not is_out:
                group = Group(block, turn=block.turn)
                found.append(group)


def _settle_room(group: Group) -> None:
    """Make the rooms of formulas as high as the text beside them; one without any beside it needs none."""
    if not any(piece.is_room for piece in group.pieces):
        return
    before = _nearest_words(group.pieces)
    after = reversed(_nearest_words(group.pieces[::-1]))
    kept: list[Piece] = []
    for piece, sides in zip(group.pieces, zip(before, after, strict=True), strict=True):
        if piece.is_room:
            rect = piece.rect
            beside = [side for side in sides if side and side.y < rect.bottom and rect.y < side.bottom]
            if not beside:
                continue
            middle = rect.y + rect.height / 2
            line = min(beside, key=lambda side: abs(side.y + side.height / 2 - middle))
            piece.rect = Rect(rect.x, line.y, rect.width, line.height)
        kept.append(piece)
    group.pieces = kept


def _nearest_words(pieces: list[Piece]) -> list[Rect | None]:
    """Return, for each piece, where the words are that came last before it."""
    found: list[Rect | None] = []
    last: Rect | None = None
    for piece in pieces:
        found.append(last)
        if not piece.is_room and piece.text.strip():
            last = piece.rect
    return found


def _note_part(group: Group, inner: list[Group]) -> None:
    inner = [one for one in inner if one.has_text]
    if len(inner) == 1:
        group.parts.append((len(group.pieces), inner[0]))


def _mark(group: Group, marker: Node) -> None:
    for child in marker.children:
        pieces = pieces_of(child) if child.text is not None else []
        if pieces and marker.css("display") != "inline":
            group.bullet = pieces[0]
        else:
            group.pieces += pieces


def pieces_of(text: Node) -> list[Piece]:
    """Return the pieces of a text node that are seen."""
    style = text.parent or text
    if text.name == "br":
        return [Piece(style, "\n", line.rect, is_break=True) for line in text.lines[:1]]
    if not text.is_visible or css.number(text.css("font-size")) < 1:
        return []
    keeps = text.css("white-space-collapse") in {"preserve", "break-spaces"}
    found: list[Piece] = []
    for line in text.lines:
        if line.text in {"\n", "\r\n"} and text.css("white-space-collapse") != "collapse":
            found.append(Piece(style, "\n", line.rect, is_break=True))
            continue
        kept = line.text.replace("\r", "").replace("\n", "").expandtabs(8)
        words = kept if keeps else _SPACES.sub(" ", line.text)
        words = words.replace("\u00ad", "").replace("\u200b", "")
        if words and line.rect.width > 0:
            found.append(Piece(style, words, line.rect))
    return found


def merged(groups: list[Group]) -> list[Group]:
    """Inline blocks that stand in a line of text become part of it; others stay by themselves."""
    gone: set[int] = set()
    for group in groups:
        if not group.parts:
            continue
        inside = [(at, part) for at, part in group.parts if _fits(group, part)]
        for at, part in reversed(inside):
            group.pieces[at:at] = part.pieces
            gone.add(id(part))
    return [group for group in groups if id(group) not in gone]


def _fits(group: Group, part: Group) -> bool:
    if not part.pieces:
        return False
    lines = {round(piece.rect.y) for piece in part.pieces}
    first = part.pieces[0].rect
    if len(lines) > 1 or part.turn != group.turn or part.bullet or part.parts:
        return False
    return any(
        piece.text.strip() and abs(piece.rect.y + piece.rect.height / 2 - first.y - first.height / 2) < first.height / 2
        for piece in group.pieces
    )


def _adopt_bullets(groups: list[Group]) -> None:
    """Make a mark that `::before` puts to the left of a block's first line that block's bullet."""
    owners: dict[int, Group] = {}
    for group in groups:
        if group.block.pseudo != "before":
            owners.setdefault(id(group.block), group)
    for group in groups:
        mark = group.block
        owner = owners.get(id(mark.parent)) if mark.pseudo == "before" and mark.parent else None
        if owner is None or owner.bullet is not None or not owner.pieces or _is_painted(mark):
            continue
        piece, first = group.pieces[0], owner.pieces[0]
        text = piece.text.strip()
        size = first.rect.height
        is_left = piece.rect.right <= first.rect.x + 1 and first.rect.x - piece.rect.x < 4 * size
        middle = piece.rect.y + piece.rect.height / 2 - first.rect.y - first.rect.height / 2
        if len(group.pieces) == 1 and 0 < len(text) <= 2 and is_left and abs(middle) < size / 2:
            owner.bullet = copy_of(piece, text=text)
            group.pieces = []


def _is_painted(node: Node) -> bool:
    paint = css.colour(node.css("background-color"))
    return bool(paint and paint.alpha > 0) or node.css("background-image") != "none" or node.px("border-top-width") > 0


def stood_up(group: Group) -> None:
    """Turn vertical writing: Latin text is horizontal text turned by 90 degrees, East Asian stays vertical."""
    mode = group.block.css("writing-mode")
    if not mode.startswith(("vertical", "sideways")):
        return
    if any(is_east_asian(character) for piece in group.pieces for character in piece.text):
        group.is_vertical = True
        _lie_down(group)
        return
    quarter = -90.0 if mode == "sideways-lr" else 90.0
    for piece in group.pieces:
        box = piece.node.box(piece.rect)
        painted = _bounds(box.x, box.y, box.width, box.height, group.turn)
        piece.rect = unturned(painted, group.turn + quarter)
    group.turn += quarter


def _lie_down(group: Group) -> None:
    """Turn columns into lines, so that they are read from the top; the box stays where it is."""
    group.frame = around(piece.rect for piece in group.pieces)
    is_left = group.block.css("writing-mode") == "vertical-lr"
    for piece in group.pieces:
        rect = piece.rect
        piece.rect = Rect(rect.y, rect.x if is_left else -rect.right, rect.height, rect.width)


def _bounds(x: float, y: float, width: float, height: float, turn: float) -> Rect:
    if round(turn) % 180 == 0:
        return Rect(x, y, width, height)
    middle_x, middle_y = x + width / 2, y + height / 2
    return Rect(middle_x - height / 2, middle_y - width / 2, height, width)
