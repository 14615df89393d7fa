"""Charts whose numbers are known, as PowerPoint's own with their workbook inside."""

from __future__ import annotations

import contextlib
import functools
from typing import TYPE_CHECKING, Any

from lxml import etree
from pptx.chart.data import CategoryChartData, XyChartData
from pptx.chart.xlsx import CategoryWorkbookWriter, XyWorkbookWriter
from pptx.dml.color import RGBColor
from pptx.enum.chart import XL_CHART_TYPE, XL_LABEL_POSITION, XL_LEGEND_POSITION, XL_TICK_MARK
from pptx.util import Pt
from xlsxwriter import Workbook  # type: ignore[import-untyped]

from warren.render.pptx_xml import clamped, finite, plain

if TYPE_CHECKING:
    from collections.abc import Iterator

    from warren.render.pptx_page import Page
    from warren.render.scene import Chart, Colour, Series

_KINDS = {
    ("bar", False): XL_CHART_TYPE.BAR_CLUSTERED,
    ("bar", True): XL_CHART_TYPE.BAR_STACKED,
    ("column", False): XL_CHART_TYPE.COLUMN_CLUSTERED,
    ("column", True): XL_CHART_TYPE.COLUMN_STACKED,
    ("line", False): XL_CHART_TYPE.LINE,
    ("line", True): XL_CHART_TYPE.LINE_STACKED,
    ("area", False): XL_CHART_TYPE.AREA,
    ("area", True): XL_CHART_TYPE.AREA_STACKED,
    ("pie", False): XL_CHART_TYPE.PIE,
    ("doughnut", False): XL_CHART_TYPE.DOUGHNUT,
    ("scatter", False): XL_CHART_TYPE.XY_SCATTER,
    ("radar", False): XL_CHART_TYPE.RADAR,
}
_LEGENDS = {
    "top": XL_LEGEND_POSITION.TOP,
    "right": XL_LEGEND_POSITION.RIGHT,
    "bottom": XL_LEGEND_POSITION.BOTTOM,
    "left": XL_LEGEND_POSITION.LEFT,
}
_ROUND = {"pie", "doughnut"}
_LINES = {"line", "scatter", "radar"}
_MOST_NUMBERS = 20_000
_CHARTML = "{http://schemas.openxmlformats.org/drawingml/2006/chart}"
_AXIS, _CROSSING = f"{_CHARTML}axId", f"{_CHARTML}crossAx"
_DRAWINGML = "{http://schemas.openxmlformats.org/drawingml/2006/main}"


class _PlainWorkbook:
    """Writes a workbook in which words of the page stay words.

    WHY: left to itself it takes `=...` for a formula, and runs what a page called a bar when its data are edited.
    """

    @contextlib.contextmanager
    def _open_worksheet(self, xlsx_file: Any) -> Iterator[tuple[Any, Any]]:
        options = {"in_memory": True, "strings_to_formulas": False, "strings_to_urls": False}
        workbook = Workbook(xlsx_file, options)
        yield workbook, workbook.add_worksheet()
        workbook.close()


class _PlainCategories(_PlainWorkbook, CategoryWorkbookWriter):  # type: ignore[misc]  # python-pptx has no types here
    """With categories."""


class _PlainPoints(_PlainWorkbook, XyWorkbookWriter):  # type: ignore[misc]  # as above
    """With points."""


class _CategoryData(CategoryChartData):  # type: ignore[misc]  # as above
    @functools.cached_property
    def _workbook_writer(self) -> Any:
        return _PlainCategories(self)


class _XyData(XyChartData):  # type: ignore[misc]  # as above
    @functools.cached_property
    def _workbook_writer(self) -> Any:
        return _PlainPoints(self)


def add_chart(value: Chart, page: Page) -> None:
    """Put the chart on the slide; raises what python-pptx raises where it cannot be written."""
    kind = _KINDS.get((value.kind, value.is_stacked)) or _KINDS.get((value.kind, False))
    numbers = sum(len(series.values) for series in value.series)
    if kind is None or not 0 < numbers <= _MOST_NUMBERS:
        message = f"There is no {value.kind!r} chart of {numbers} numbers."
        raise ValueError(message)
    data = _points(value) if value.kind == "scatter" else _categories(value)
    box, scale = value.box, page.scale
    places = (scale.place(box.x), scale.place(box.y), scale.length(box.width), scale.length(box.height))
    framed = page.slide.shapes.add_chart(kind, *places, data)
    number = page.take_id()
    framed.element.nvGraphicFramePr.cNvPr.set("id", str(number))
    framed.name = plain(value.name)[:200] or f"Chart {number - 1}"
    _dress(framed.chart, value, page)
    for number in framed.chart.element.iter(_AXIS, _CROSSING):
        # python-pptx numbers axes below zero, which the schema forbids.
        number.set("val", number.get("val").lstrip("-"))


def _categories(value: Chart) -> Any:
    data = _CategoryData()
    longest = max(len(series.values) for series in value.series)
    names = [plain(name)[:500] for name in value.categories[:longest]]
    data.categories = names + [str(number + 1) for number in range(len(names), longest)]
    for series in value.series:
        values = [None if number is None else finite(number) for number in series.values]
        data.add_series(plain(series.name)[:500], values + [None] * (longest - len(values)))
    return data


def _points(value: Chart) -> Any:
    data = _XyData()
    for series in value.series:
        points = data.add_series(plain(series.name)[:500])
        for x, y in zip(series.xs, series.values, strict=False):
            if y is not None:
                points.add_data_point(finite(x), finite(y))
    return data


def _dress(chart: Any, value: Chart, page: Page) -> None:
    """Colours, fonts, title and legend as on the page."""
    chart.font.size = Pt(clamped(round(page.scale.points(value.size), 1), 1, 400))
    chart.font.color.rgb = _rgb(value.colour)
    if value.family:
        chart.font.name = plain(value.family)[:200]
    chart.has_title = bool(value.title.strip())
    if chart.has_title:
        chart.chart_title.text_frame.text = plain(value.title)[:500]
    chart.has_legend = value.legend in _LEGENDS
    if chart.has_legend:
        chart.legend.position = _LEGENDS[value.legend]
        chart.legend.include_in_layout = False
    plot = chart.plots[0]
    plot.vary_by_categories = value.kind in _ROUND
    for drawn, series in zip(plot.series, value.series, strict=False):
        _paint(drawn, series, value.kind)
    if value.kind not in _ROUND | {"radar"}:
        if value.kind in {"bar", "column"}:
            plot.gap_width, plot.overlap = 60, 100 if value.is_stacked else -5
        _rule(chart.value_axis, value)
        chart.category_axis.major_tick_mark = XL_TICK_MARK.NONE
        _line(chart.category_axis.format.line, value.grid)
    if value.plot is not None and value.kind != "radar":
        place_plot(chart, value.plot)
    if value.kind == "doughnut":
        for hole in chart.element.iter(f"{_CHARTML}holeSize"):
            hole.set("val", str(round(clamped(value.hole, 0.1, 0.9) * 100)))
    if value.has_labels and value.kind == "pie":
        plot.has_data_labels = True
        plot.data_labels.show_category_name, plot.data_labels.show_value = True, False
        plot.data_labels.position = XL_LABEL_POSITION.OUTSIDE_END


def _rule(axis: Any, value: Chart) -> None:
    """Give the axis of values its range and lines."""
    axis.format.line.fill.background()
    axis.has_major_gridlines = value.grid is not None
    if value.grid is not None:
        _line(axis.major_gridlines.format.line, value.grid)
    if value.low is not None and value.high is not None:
        axis.minimum_scale, axis.maximum_scale = finite(value.low), finite(value.high)
        if value.step is not None:
            axis.major_unit = finite(value.step, 1.0)


def _line(line: Any, colour: Colour | None) -> None:
    if colour is None:
        line.fill.background()
        return
    line.width = Pt(0.75)
    _fill(line.fill, colour)


def place_plot(chart: Any, place: tuple[float, float, float, float]) -> None:
    """Say where the values are drawn, without the words of the axes."""
    area = chart.element.find(f".//{_CHARTML}plotArea")
    for old in area.findall(f"{_CHARTML}layout"):
        area.remove(old)
    layout = etree.Element(f"{_CHARTML}layout")
    manual = etree.SubElement(layout, f"{_CHARTML}manualLayout")
    modes = (("layoutTarget", "inner"), ("xMode", "edge"), ("yMode", "edge"))
    sides = zip("xywh", (str(round(clamped(part, 0, 1), 5)) for part in place), strict=True)
    for name, said in (*modes, *sides):
        etree.SubElement(manual, f"{_CHARTML}{name}").set("val", said)
    area.insert(0, layout)


def _fill(fill: Any, value: Colour) -> None:
    """Fill with a colour that may be seen through, which python-pptx has no word for."""
    fill.solid()
    fill.fore_color.rgb = _rgb(value)
    if value.alpha < 1:
        shade = fill._xPr.find(f".//{_DRAWINGML}srgbClr")  # noqa: SLF001 - as above
        etree.SubElement(shade, f"{_DRAWINGML}alpha").set("val", str(round(clamped(value.alpha, 0, 1) * 100_000)))


def _paint(drawn: Any, series: Series, kind: str) -> None:
    if kind in _LINES and series.fill:
        drawn.format.line.color.rgb = _rgb(series.fill)
        drawn.format.line.width = Pt(2)
        if kind == "line":
            drawn.smooth = series.is_smooth
        drawn.marker.format.fill.solid()
        drawn.marker.format.fill.fore_color.rgb = _rgb(series.fill)
        drawn.marker.format.line.fill.background()
    elif series.fill and kind not in _ROUND:
        _fill(drawn.format.fill, series.fill)
        if series.line is not None:
            drawn.format.line.color.rgb, drawn.format.line.width = _rgb(series.line), Pt(2)
    for index, colour in enumerate(series.fills[: len(series.values)]):
        point = drawn.points[index].format
        _fill(point.fill, colour)
        if kind in _ROUND and series.line is not None:
            point.line.color.rgb, point.line.width = _rgb(series.line), Pt(1)


def _rgb(value: Colour) -> RGBColor:
    return RGBColor(*(int(clamped(part, 0, 255)) for part in (value.red, value.green, value.blue)))
