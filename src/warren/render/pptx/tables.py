"""Tables: real ones, with the page's column widths and row heights to the pixel."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from warren.render.pptx import seat
from warren.render.pptx.fill import fill, line
from warren.render.pptx.geometry import frame
from warren.render.pptx.text import paragraphs
from warren.render.pptx.xml import element, finite
from warren.render.scene.scene import Box, Cell, Table

if TYPE_CHECKING:
    from collections.abc import Iterator

    from warren.render.pptx.page import Page

_URI = "http://schemas.openxmlformats.org/drawingml/2006/table"
_ANCHOR = {"top": "t", "middle": "ctr", "bottom": "b"}
_LINES = (("a:lnL", 3), ("a:lnR", 1), ("a:lnT", 0), ("a:lnB", 2))
_MOST = 500
"""Rows or columns; a page with more is no slide."""


def table(value: Table, page: Page) -> Any:
    """`p:graphicFrame` with an `a:tbl`."""
    value, slack = _loosened(value)
    columns = [element("a:gridCol", {"w": page.scale.length(width)}) for width in value.column_widths[:_MOST]]
    rows = [
        element("a:tr", {"h": page.scale.length(value.row_heights[number])}, *_cells(value, number, page, slack))
        for number in range(min(len(value.row_heights), len(value.cells), _MOST))
    ]
    upright = Box(value.box.x, value.box.y, sum(value.column_widths), sum(value.row_heights))
    grid = element("a:tbl", None, element("a:tblPr"), element("a:tblGrid", None, *columns), *rows)
    return element(
        "p:graphicFrame",
        None,
        element(
            "p:nvGraphicFramePr",
            None,
            page.properties(value.name, "Table"),
            element("p:cNvGraphicFramePr", None, element("a:graphicFrameLocks", {"noGrp": 1})),
            element("p:nvPr"),
        ),
        frame(upright, page.scale, "p:xfrm"),
        element("a:graphic", None, element("a:graphicData", {"uri": _URI}, grid)),
    )


def _loosened(value: Table) -> tuple[Table, float]:
    """Widen a last column that has no paint, so that nothing wraps there that has just room on the page."""
    last = [row[-1] for row in value.cells if len(row) == len(value.column_widths) and row[-1] is not None]
    if not last or any(cell.fill is not None or any(cell.strokes) for cell in last):
        return value, 0.0
    slack = 6 + 0.02 * value.column_widths[-1]
    return replace(value, column_widths=(*value.column_widths[:-1], value.column_widths[-1] + slack)), slack


def _cells(value: Table, number: int, page: Page, slack: float) -> Iterator[Any]:
    """Return a row of `a:tc`; places that another cell covers are there too, marked as merged."""
    width = len(value.column_widths[:_MOST])
    owners = _owners(value)
    for column in range(width):
        row, first = owners.get((number, column), (number, column))
        cell = _at(value, row, first)
        is_covered = (row, first) != (number, column)
        attributes = {
            "rowSpan": cell.rows if cell and not is_covered and cell.rows > 1 else None,
            "gridSpan": cell.columns if cell and not is_covered and cell.columns > 1 else None,
            "hMerge": 1 if is_covered and first != column else None,
            "vMerge": 1 if is_covered and row != number else None,
        }
        shown = Cell() if cell is None or is_covered else cell
        if slack and column == width - 1 and any(each.align in {"right", "center"} for each in shown.paragraphs):
            top, right, bottom, left = shown.padding
            shown = replace(shown, padding=(top, right + slack, bottom, left))
        yield _cell(shown, _room(value, number, column), page, attributes)


def _at(value: Table, row: int, column: int) -> Cell | None:
    return value.cells[row][column] if column < len(value.cells[row]) else None


def _owners(value: Table) -> dict[tuple[int, int], tuple[int, int]]:
    """Which cell lies over each place that is not that cell's first."""
    owners: dict[tuple[int, int], tuple[int, int]] = {}
    for row, cells in enumerate(value.cells[:_MOST]):
        for column, cell in enumerate(cells[:_MOST]):
            if cell is None or (cell.rows <= 1 and cell.columns <= 1):
                continue
            for down in range(min(cell.rows, len(value.cells) - row)):
                for across in range(min(cell.columns, len(value.column_widths) - column)):
                    owners[row + down, column + across] = (row, column)
    return owners


def _room(value: Table, row: int, column: int) -> Box:
    cell = _at(value, row, column)
    rows, columns = (cell.rows, cell.columns) if cell else (1, 1)
    wide = sum(value.column_widths[column : column + max(columns, 1)])
    high = sum(value.row_heights[row : row + max(rows, 1)])
    return Box(0, 0, wide, high)


def _cell(value: Cell, room: Box, page: Page, attributes: dict[str, Any]) -> Any:
    top, bottom = _margins(value, room)
    properties = {
        "marL": page.scale.inset(value.padding[3]),
        "marR": page.scale.inset(_right(value)),
        "marT": page.scale.inset(top),
        "marB": page.scale.inset(bottom),
        "anchor": _ANCHOR.get(value.anchor, "ctr"),
    }
    sides = [line(value.strokes[side], page.scale, tag) for tag, side in _LINES]
    words = paragraphs(value.paragraphs, page, room)
    if not value.paragraphs:
        # An empty cell is as high as its invisible line; LibreOffice would let an 18 pt one stretch the row.
        words = [element("a:p", None, element("a:endParaRPr", {"lang": page.lang, "sz": 100}))]
    body = element("a:txBody", None, element("a:bodyPr"), element("a:lstStyle"), *words)
    return element("a:tc", attributes, body, element("a:tcPr", properties, *sides, fill(value.fill, room)))


def _right(value: Cell) -> float:
    """Return the right padding, less what keeps another program from wrapping what the page has on one line."""
    is_left = all(each.align == "left" for each in value.paragraphs)
    wraps = any(each.lines > 1 + sum(run.text.count("\n") for run in each.runs) for each in value.paragraphs)
    return 0.0 if is_left and not wraps else max(value.padding[1] - 1, 0.0)


def _margins(value: Cell, room: Box) -> tuple[float, float]:
    """Top and bottom margins that seat the text on its baseline and never make the row grow."""
    top, _, bottom, _ = value.padding
    if not value.paragraphs:
        return 0.0, 0.0
    first = value.paragraphs[0]
    high = seat.total(value.paragraphs)
    spare = max(room.height - high, 0.0)
    if first.first_baseline > 0:
        wanted = min(max(finite(first.first_baseline) - seat.above(first), 0.0), spare)
        if value.anchor == "top":
            return wanted, 0.0
        if value.anchor == "bottom":
            return 0.0, spare - wanted
        return max(2 * wanted - spare, 0.0), max(spare - 2 * wanted, 0.0)
    if top + bottom > spare:
        share = spare / (top + bottom)
        return top * share, bottom * share
    return top, bottom
