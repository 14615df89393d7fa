"""Lines in other charts: over columns, and along the top of areas, whose border would surround the area."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

from lxml import etree

from warren.render.pptx.fill import colour
from warren.render.pptx.xml import element

if TYPE_CHECKING:
    from collections.abc import Sequence

    from warren.render.scene.scene import Colour, Series

_C = "{http://schemas.openxmlformats.org/drawingml/2006/chart}"
_WIDTH = 25_400
"""EMU: two points."""


def edge(chart: Any, series: Sequence[Series]) -> None:
    """Add a line chart with the same numbers to an area chart; its lines have no names in the legend."""
    area = chart.element.find(f".//{_C}areaChart")
    drawn = [] if area is None else list(area.findall(f"{_C}ser"))
    pairs = [(old, each.line) for old, each in zip(drawn, series, strict=False) if each.line is not None]
    if not pairs:
        return
    grouping = area.find(f"{_C}grouping").get("val")
    _add(area, grouping, [_line(old, paint, len(drawn)) for old, paint in pairs])
    legend = chart.element.find(f".//{_C}legend")
    if legend is not None:
        _hide(legend, [int(old.find(f"{_C}idx").get("val")) + len(drawn) for old, _ in pairs])


def lift(chart: Any, series: Sequence[Series]) -> None:
    """Make lines of those series of a column chart that are lines on the page."""
    columns = chart.element.find(f".//{_C}barChart")
    drawn = [] if columns is None else list(columns.findall(f"{_C}ser"))
    pairs = [(old, each) for old, each in zip(drawn, series, strict=False) if each.is_line and each.fill is not None]
    if not pairs or len(pairs) == len(drawn):
        return
    made = [_line(old, each.fill, 0, is_smooth=each.is_smooth) for old, each in pairs]
    for old, _ in pairs:
        columns.remove(old)
    _add(columns, "standard", made)


def _add(beside: Any, grouping: str, series: list[Any]) -> None:
    lines = etree.Element(f"{_C}lineChart")
    _word(lines, "grouping", grouping)
    _word(lines, "varyColors", "0")
    lines.extend(series)
    _word(lines, "marker", "1")
    lines.extend(copy.deepcopy(number) for number in beside.findall(f"{_C}axId"))
    beside.addnext(lines)


def _line(area: Any, paint: Colour | None, count: int, *, is_smooth: bool = False) -> Any:
    """Return the series of an area, or of columns, as that of a line."""
    made = etree.Element(f"{_C}ser")
    for name in ("idx", "order"):
        _word(made, name, str(int(area.find(f"{_C}{name}").get("val")) + count))
    made.extend(copy.deepcopy(part) for part in area.findall(f"{_C}tx"))
    fill = None if paint is None else element("a:solidFill", None, colour(paint))
    stroke = element("a:ln", {"w": _WIDTH, "cap": "rnd"}, fill, element("a:round"))
    etree.SubElement(made, f"{_C}spPr").append(stroke)
    _word(etree.SubElement(made, f"{_C}marker"), "symbol", "none")
    made.extend(copy.deepcopy(part) for part in (*area.findall(f"{_C}cat"), *area.findall(f"{_C}val")))
    _word(made, "smooth", str(int(is_smooth)))
    return made


def _hide(legend: Any, numbers: list[int]) -> None:
    place = legend.find(f"{_C}legendPos")
    for number in reversed(numbers):
        entry = etree.Element(f"{_C}legendEntry")
        _word(entry, "idx", str(number))
        _word(entry, "delete", "1")
        if place is None:
            legend.insert(0, entry)
        else:
            place.addnext(entry)


def _word(parent: Any, name: str, value: str) -> None:
    etree.SubElement(parent, f"{_C}{name}").set("val", value)
