"""Charts whose numbers are known, as PowerPoint's own with their workbook inside."""

from __future__ import annotations

import contextlib
import functools
from typing import TYPE_CHECKING, Any

from lxml import etree
from pptx.chart.data import CategoryChartData, XyChartData
from pptx.chart.xlsx import CategoryWorkbookWriter, XyWorkbookWriter
from pptx.dml.color import RGBColor
from pptx.enum.chart import (
    XL_AXIS_CROSSES,
    XL_CHART_TYPE,
    XL_LABEL_POSITION,
    XL_LEGEND_POSITION,
    XL_MARKER_STYLE,
    XL_TICK_LABEL_POSITION,
    XL_TICK_MARK,
)
from pptx.util import Pt
from xlsxwriter import Workbook  # type: ignore[import-untyped]

from warren.render.pptx.chart_lines import edge, lift
from warren.render.pptx.xml import clamped, finite, plain

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from warren.render.pptx.page import Page
    from warren.render.scene.scene import Chart, Colour, Series

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
    """Writes a workbook in which text of the page stays text.

    WHY: XlsxWriter takes `=...` for a formula by default, which would run when the chart's data are edited.
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
        raise ValueError(f"There is no {value.kind!r} chart of {numbers} numbers.")
    if value.kind == "radar" and any(series.line is not None for series in value.series):
        kind = XL_CHART_TYPE.RADAR_FILLED
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
        _title(chart, value, page)
    chart.has_legend = value.legend in _LEGENDS
    if chart.has_legend:
        chart.legend.position = _LEGENDS[value.legend]
        chart.legend.include_in_layout = False
    plot = chart.plots[0]
    plot.vary_by_categories = value.kind in _ROUND
    for drawn, series in zip(plot.series, value.series, strict=False):
        _paint(drawn, series, value.kind, page)
    if value.kind not in _ROUND:
        _axes(chart, value)
    if value.kind == "area":
        edge(chart, value.series)
    if value.kind == "column":
        lift(chart, value.series)
    if value.plot is not None:
        place_plot(chart, value.plot)
    if value.kind == "doughnut":
        for hole in chart.element.iter(f"{_CHARTML}holeSize"):
            hole.set("val", str(round(clamped(value.hole, 0.1, 0.9) * 100)))
    if value.has_labels and value.kind == "pie":
        plot.has_data_labels = True
        plot.data_labels.show_category_name, plot.data_labels.show_value = True, False
        plot.data_labels.position = XL_LABEL_POSITION.OUTSIDE_END


def _title(chart: Any, value: Chart, page: Page) -> None:
    chart.chart_title.text_frame.text = plain(value.title)[:500]
    if value.title_size > 0:
        size = Pt(clamped(round(page.scale.points(value.title_size), 1), 1, 400))
        chart.chart_title.text_frame.paragraphs[0].font.size = size
    if value.title_is_left:
        layout = chart.chart_title.element.find(f"{_CHARTML}layout")
        if layout is None:
            layout = etree.SubElement(chart.chart_title.element, f"{_CHARTML}layout")
            chart.chart_title.element.find(f"{_CHARTML}tx").addnext(layout)
        _manual(layout, (("xMode", "edge"), ("yMode", "edge"), ("x", "0.01"), ("y", "0.01")))


def _manual(layout: Any, words: Iterable[tuple[str, str]]) -> None:
    manual = etree.SubElement(layout, f"{_CHARTML}manualLayout")
    for name, said in words:
        etree.SubElement(manual, f"{_CHARTML}{name}").set("val", said)


def _axes(chart: Any, value: Chart) -> None:
    if value.kind in {"bar", "column"}:
        chart.plots[0].gap_width, chart.plots[0].overlap = 60, 100 if value.is_stacked else -5
    _rule(chart.value_axis, value)
    if not value.has_ticks:
        chart.value_axis.tick_label_position = XL_TICK_LABEL_POSITION.NONE
    if value.kind == "radar":
        chart.value_axis.major_tick_mark = XL_TICK_MARK.NONE
        for word in list(chart.element.iter(f"{_CHARTML}smooth")):
            # python-pptx writes it into nets, where the schema has no place for it.
            word.getparent().remove(word)
        return
    lying = chart.category_axis
    lying.major_tick_mark = XL_TICK_MARK.NONE
    _line(lying.format.line, value.grid)
    if value.kind == "scatter" and value.x_low is not None and value.x_high is not None:
        chart.value_axis.crosses = lying.crosses = XL_AXIS_CROSSES.MINIMUM
        lying.minimum_scale, lying.maximum_scale = finite(value.x_low), finite(value.x_high)
        lying.has_major_gridlines = value.grid is not None
        if value.grid is not None:
            _line(lying.major_gridlines.format.line, value.grid)
        if value.x_step is not None:
            lying.major_unit = finite(value.x_step, 1.0)


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
    """Set the plot area, without the labels of the axes."""
    area = chart.element.find(f".//{_CHARTML}plotArea")
    for old in area.findall(f"{_CHARTML}layout"):
        area.remove(old)
    layout = etree.Element(f"{_CHARTML}layout")
    modes = (("layoutTarget", "inner"), ("xMode", "edge"), ("yMode", "edge"))
    sides = zip("xywh", (str(round(clamped(part, 0, 1), 5)) for part in place), strict=True)
    _manual(layout, (*modes, *sides))
    area.insert(0, layout)


def _fill(fill: Any, value: Colour) -> None:
    """Fill with a translucent colour, which python-pptx cannot express."""
    fill.solid()
    fill.fore_color.rgb = _rgb(value)
    if value.alpha < 1:
        shade = fill._xPr.find(f".//{_DRAWINGML}srgbClr")  # noqa: SLF001 - as above
        etree.SubElement(shade, f"{_DRAWINGML}alpha").set("val", str(round(clamped(value.alpha, 0, 1) * 100_000)))


def _paint(drawn: Any, series: Series, kind: str, page: Page) -> None:
    if kind in _LINES and series.fill:
        _trace(drawn, series, kind, page)
    elif series.fill and kind not in _ROUND:
        _fill(drawn.format.fill, series.fill)
    for index, colour in enumerate(series.fills[: len(series.values)]):
        point = drawn.points[index].format
        _fill(point.fill, colour)
        if kind in _ROUND and series.line is not None:
            point.line.color.rgb, point.line.width = _rgb(series.line), Pt(1)


def _trace(drawn: Any, series: Series, kind: str, page: Page) -> None:
    """Draw a series as a line with its points, or as one of them."""
    colour = series.line or series.fill
    if colour is None:
        return
    if series.has_line:
        drawn.format.line.color.rgb, drawn.format.line.width = _rgb(colour), Pt(2)
    else:
        drawn.format.line.fill.background()
    if kind == "line":
        drawn.smooth = series.is_smooth
    if kind == "radar":
        _shade(drawn, series)
        return
    marker = drawn.marker
    if series.marker:
        marker.style = XL_MARKER_STYLE.CIRCLE
        marker.size = round(clamped(page.scale.points(series.marker), 2, 72))
    _fill(marker.format.fill, colour)
    marker.format.line.fill.background()


def _shade(drawn: Any, series: Series) -> None:
    """Fill the area inside a line, where the page does."""
    if series.line is not None and series.fill is not None:
        _fill(drawn.format.fill, series.fill)
    else:
        drawn.format.fill.background()


def _rgb(value: Colour) -> RGBColor:
    return RGBColor(*(int(clamped(part, 0, 255)) for part in (value.red, value.green, value.blue)))
