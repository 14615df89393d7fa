"""Tables of the page as tables: cells with their fill, borders, padding and text."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import TYPE_CHECKING

from warren.render.scene import css
from warren.render.scene.clip import clips_of, is_inside, radii_of, rounded_by
from warren.render.scene.formula import is_formula
from warren.render.scene.lines import lines_of
from warren.render.scene.paint import SIDES, fills_of, has_paint, strokes_of
from warren.render.scene.pictures import REPLACED
from warren.render.scene.scene import Cell, Colour, Fill, Paragraph, Shape, Stroke, Table
from warren.render.scene.snapshot import Node, Rect
from warren.render.scene.text import laid_out

if TYPE_CHECKING:
    from warren.render.scene.blocks import Group
    from warren.render.scene.raw import RawSlide

_MOST_CELLS = 3000
_MOST_SPAN = 200
_SAME = 1.5


@dataclass(slots=True)
class Grid:
    """A table's cells and the lines between them."""

    table: Node
    cells: list[Node]
    xs: list[float]
    ys: list[float]
    nodes: set[int] = field(default_factory=set)


def grid_of(table: Node, end: float) -> Grid | None:
    """Return the grid of the cells that begin above the slide's `end`; None for another layout, or a turned table."""
    cells: list[Node] = []
    nodes: set[int] = set()
    stack = list(table.children)
    while stack:
        node = stack.pop()
        display = node.css("display")
        if display == "table-cell" and node.text is None:
            cells.append(node)
            continue
        if display.startswith("table-") and display != "table-caption":
            nodes.add(id(node))
            stack.extend(node.children)
        elif node.css("display") == "table":
            return None
    cells = [cell for cell in cells if cell.rect.width > 0.5 and cell.rect.height > 0.5 and cell.rect.y < end]
    cells.sort(key=lambda cell: (cell.rect.y, cell.rect.x))
    if not cells or len(cells) > _MOST_CELLS or table.turn:
        return None
    xs = _edges([(cell.rect.x, cell.rect.right) for cell in cells])
    ys = _edges([(cell.rect.y, cell.rect.bottom) for cell in cells])
    if len(xs) < 2 or len(ys) < 2 or (len(xs) - 1) * (len(ys) - 1) > _MOST_CELLS:
        return None
    return Grid(table, cells, xs, ys, nodes)


def _edges(spans: list[tuple[float, float]]) -> list[float]:
    """Return the lines between cells: where one begins, or in the middle of the gap before it.

    The space between two cells (`border-spacing`) goes to both: a column of its own would hinder editing.
    """
    starts: list[float] = []
    for start in sorted(start for start, _ in spans):
        if not starts or start - starts[-1] >= _SAME:
            starts.append(start)
    found = starts[:1]
    for start in starts[1:]:
        before = [end for _, end in spans if found[-1] < end < start + _SAME]
        found.append((max(before, default=start) + start) / 2)
    return [*found, max(end for _, end in spans)]


def is_simple(cell: Node) -> bool:
    """Whether a cell has nothing but text in it: what else it has stays above the table, with the text."""
    stack = list(cell.children)
    while stack:
        node = stack.pop()
        if is_formula(node):
            continue
        if node.text is None and (
            node.name in REPLACED or has_paint(node) or node.turn or node.css("position") == "absolute"
        ):
            return False
        stack.extend(node.children)
    return True


def table_of(raw: RawSlide, grid: Grid, groups: dict[int, list[Group]]) -> tuple[Table, set[int], list[Shape]]:
    """Return the table, the ids of the text groups in it, and the shapes to paint under it."""
    columns, rows = len(grid.xs) - 1, len(grid.ys) - 1
    places: list[list[Cell | None]] = [[Cell() for _ in range(columns)] for _ in range(rows)]
    used: set[int] = set()
    painted: dict[int, Fill | None] = {}
    for node in grid.cells:
        left, right = _index(grid.xs, node.rect.x), _index(grid.xs, node.rect.right)
        top, bottom = _index(grid.ys, node.rect.y), _index(grid.ys, node.rect.bottom)
        if right <= left or bottom <= top:
            continue
        cell, taken = _cell(raw, node, grid, groups.get(id(node), []))
        used |= taken
        painted[id(node)] = cell.fill
        for row in range(top, bottom):
            for column in range(left, right):
                places[row][column] = None
        places[top][left] = replace(cell, rows=min(bottom - top, _MOST_SPAN), columns=min(right - left, _MOST_SPAN))
    area = Rect(grid.xs[0], grid.ys[0], grid.xs[-1] - grid.xs[0], grid.ys[-1] - grid.ys[0])
    made = Table(
        box=grid.table.box(area),
        column_widths=tuple(b - a for a, b in pairwise(grid.xs)),
        row_heights=tuple(b - a for a, b in pairwise(grid.ys)),
        cells=tuple(tuple(row) for row in places),
        name=grid.table.attributes.get("class", "")[:40] or "table",
    )
    under, bare = _rounded(raw, grid, painted)
    return _without(made, grid, bare), used, under


def _rounded(raw: RawSlide, grid: Grid, painted: dict[int, Fill | None]) -> tuple[list[Shape], set[int]]:
    """Return the paint of cells with round corners, which no cell of a table can have, and the ids of such cells.

    A row of one colour is one shape: between two, some programs would show a hairline.
    """
    made: list[Shape] = []
    bare: set[int] = set()
    rows: dict[int, list[Node]] = {}
    for node in grid.cells:
        if painted.get(id(node)) is not None:
            rows.setdefault(_index(grid.ys, node.rect.y), []).append(node)
    for row in rows.values():
        radii = [_radii(raw, node) for node in row]
        if max(max(each) for each in radii) <= 1:
            continue
        is_even = len({(painted[id(node)], node.rect.height) for node in row}) == 1 and not row[0].turn
        if is_even and all(abs(b.rect.x - a.rect.right) < 1 for a, b in pairwise(row)):
            whole = row[0].rect.union(row[-1].rect)
            corners = (radii[0][0], radii[-1][1], radii[-1][2], radii[0][3])
            made.append(Shape(box=row[0].box(whole), fill=painted[id(row[0])], radii=corners, name="row"))
            bare |= {id(node) for node in row}
            continue
        for node, corners in zip(row, radii, strict=True):
            if max(corners) > 1:
                made.append(Shape(box=node.box(), fill=painted[id(node)], radii=corners, name="cell"))
                bare.add(id(node))
    return made, bare


def _radii(raw: RawSlide, node: Node) -> tuple[float, float, float, float]:
    radii = radii_of(node)
    for clip in clips_of(node, raw.tree()[0]):
        if any(clip.radii) and is_inside(node.rect, clip.rect):
            radii = rounded_by(node.rect, radii, clip)
    return radii


def _without(table: Table, grid: Grid, bare: set[int]) -> Table:
    """Return the table without the paint of these cells."""
    places = {(_index(grid.ys, node.rect.y), _index(grid.xs, node.rect.x)) for node in grid.cells if id(node) in bare}
    rows = tuple(
        tuple(replace(cell, fill=None) if cell and (y, x) in places else cell for x, cell in enumerate(row))
        for y, row in enumerate(table.cells)
    )
    return replace(table, cells=rows)


def _index(edges: list[float], value: float) -> int:
    return min(range(len(edges)), key=lambda at: abs(edges[at] - value))


def _cell(raw: RawSlide, node: Node, grid: Grid, groups: list[Group]) -> tuple[Cell, set[int]]:
    paragraphs: list[Paragraph] = []
    taken: set[int] = set()
    left, right = node.rect.right, node.rect.x
    if is_simple(node):
        for group in groups:
            laid = laid_out(raw, group, lines_of(group))
            if laid is None:
                continue
            taken.add(id(group))
            left, right = min(left, laid.rect.x), max(right, laid.rect.right)
            shift = laid.rect.y - node.rect.y
            paragraphs += [replace(one, first_baseline=one.first_baseline + shift) for one in laid.paragraphs]
    padding = [node.px(f"padding-{side}") + node.px(f"border-{side}-width") for side in SIDES]
    if paragraphs:
        # WHY: text that a program sets a hair wider than the browser must not break: the padding gives way.
        align = paragraphs[0].align
        free_left, free_right = max(0.0, left - node.rect.x), max(0.0, node.rect.right - right)
        if align == "center":
            padding[3], padding[1] = min(padding[3], free_left), min(padding[1], free_right)
        if align in {"left", "justify"}:
            padding[3], padding[1] = free_left, padding[1] * 0.7
        if align in {"right", "justify"}:
            padding[1], padding[3] = free_right, padding[3] * 0.7
    anchor = {"top": "top", "bottom": "bottom"}.get(node.css("vertical-align"), "middle")
    return Cell(
        paragraphs=tuple(paragraphs),
        fill=_fill(node, grid),
        strokes=_strokes(node, grid),
        padding=(padding[0], padding[1], padding[2], padding[3]),
        anchor=anchor,
    ), taken


def _fill(node: Node, grid: Grid) -> Fill | None:
    """Return the cell's own fill over those of its row and section."""
    made: Fill | None = None
    chain = [node]
    owner = node.parent
    while owner is not None and owner is not grid.table:
        chain.append(owner)
        owner = owner.parent
    for one in reversed(chain):
        for fill in fills_of(one, node.rect):
            made = css.over(fill, made) if isinstance(made, Colour) and isinstance(fill, Colour) else fill
    return made


def _strokes(node: Node, grid: Grid) -> tuple[Stroke | None, Stroke | None, Stroke | None, Stroke | None]:
    own = strokes_of(node)
    row = node.parent
    if row is None or row is grid.table or grid.table.css("border-collapse") != "collapse":
        return own
    above = strokes_of(row)
    return own[0] or above[0], own[1], own[2] or above[2], own[3]
