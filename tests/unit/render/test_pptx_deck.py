"""Scenes written as PPTX: read again with python-pptx, and checked against the standard."""

from __future__ import annotations

import io
import math
from dataclasses import replace
from typing import Any

import pytest
from pptx import Presentation
from pptx.enum.shapes import MSO_SHAPE_TYPE

from unit.render import ooxml, scenes
from warren.render.pptx.deck import write_deck
from warren.render.scene.scene import Box, Chart, Colour, Deck, Item, Picture, Shape, Slide, TextBox


def opened(deck: Deck) -> Any:
    """The deck, written and read again."""
    return Presentation(io.BytesIO(write_deck(deck)))


def test_everything_a_scene_can_have_is_written_as_the_standard_wants_it() -> None:
    written = write_deck(scenes.everything())
    assert ooxml.faults(written) == []
    presentation = Presentation(io.BytesIO(written))
    assert len(presentation.slides) == 3
    assert presentation.core_properties.title == "Demo"


def test_the_same_scene_gives_the_same_slides() -> None:
    first, second = (opened(scenes.everything()).slides[1].element.xml for _ in range(2))
    assert first == second


def test_a_page_is_as_wide_as_powerpoints_own_and_a_pixel_a_whole_number_of_emu() -> None:
    presentation = opened(scenes.deck([Shape(box=Box(10, 20, 300, 40), fill=scenes.RED)]))
    assert (presentation.slide_width, presentation.slide_height) == (12_192_000, 6_858_000)
    (shape,) = presentation.slides[0].shapes
    assert (shape.left, shape.top, shape.width, shape.height) == (63_500, 127_000, 1_905_000, 254_000)


@pytest.mark.parametrize(("width", "height"), [(1024, 768), (1080, 1920), (10, 4_000), (4_096, 1)])
def test_a_page_of_any_size_stays_within_what_powerpoint_opens(width: float, height: float) -> None:
    presentation = opened(Deck(slides=(Slide(width=width, height=height, items=()),)))
    for side in (presentation.slide_width, presentation.slide_height):
        assert 914_400 <= side <= 51_206_400
    layouts = [shape for layout in presentation.slide_layouts for shape in layout.placeholders]
    assert all(shape.left + shape.width <= presentation.slide_width for shape in layouts)


def test_numbers_that_are_none_and_places_far_away_do_no_harm() -> None:
    nan, endless = math.nan, math.inf
    boxes = [Box(nan, nan, nan, nan), Box(-1e12, 1e12, endless, -5), Box(0, 0, 10, 10, nan), Box(5, 5, 0, 0, 725)]
    items: list[Any] = [Shape(box=box, fill=Colour(-5, 999, 0, nan), radii=(nan, endless, 1e9, -3)) for box in boxes]
    items += [replace(item, box=box) for box in boxes for item in [*scenes.texts(), *scenes.pictures(), scenes.table()]]
    items += [replace(scenes.chart(), box=box) for box in boxes]
    items.append(scenes.text(scenes.run("x", nan), pitch=nan))
    items.append(scenes.text(scenes.run("x", 1e9), first_baseline=endless, pitch=1e12))
    assert ooxml.faults(write_deck(scenes.deck(items))) == []


def test_what_xml_cannot_hold_is_left_out() -> None:
    words = "a\x00b\x0bc\ud800d\ufffee\x1ff"
    title = scenes.text(scenes.run(words), name=words, is_title=True)
    shown = Picture(box=Box(0, 0, 10, 10), data=scenes.png(), alt=words)
    presentation = opened(replace(scenes.deck([title, shown], notes=words), title=words))
    slide = presentation.slides[0]
    assert slide.shapes[0].text_frame.text == "abcdef"
    assert slide.notes_slide.notes_text_frame.text == "abcdef"
    assert presentation.core_properties.title == "abcdef"


def test_the_title_is_a_placeholder_where_the_page_has_it() -> None:
    items: list[Item] = [
        scenes.text(scenes.run("Shown", 72), is_title=True, x=333, y=222),
        scenes.text(scenes.run("words")),
    ]
    slide = opened(scenes.deck(items, title="Shown")).slides[0]
    assert slide.shapes.title.text_frame.text == "Shown"
    assert slide.shapes.title.left == 333 * 6_350
    assert slide.slide_layout.name == "Title Only"
    assert opened(scenes.deck([scenes.text(scenes.run("words"))])).slides[0].slide_layout.name == "Blank"


def test_a_slide_has_one_title_even_where_the_page_has_two() -> None:
    titles = [scenes.text(scenes.run(words), is_title=True) for words in ("one", "two")]
    slide = opened(scenes.deck([*titles])).slides[0]
    assert [shape.is_placeholder for shape in slide.shapes] == [True, False]


def test_notes_are_written_only_where_there_are_any() -> None:
    first, second = opened(scenes.everything()).slides[1], opened(scenes.everything()).slides[2]
    assert first.notes_slide.notes_text_frame.text == "Say hello\nand goodbye"
    assert not second.has_notes_slide


def test_things_lie_in_the_order_of_the_scene() -> None:
    names: list[Any] = [replace(scenes.text(scenes.run("x")), name="back"), replace(scenes.chart(), name="middle")]
    names.append(replace(scenes.table(), name="front"))
    slide = opened(scenes.deck([*names])).slides[0]
    assert [shape.name for shape in slide.shapes] == ["back", "middle", "front"]
    assert len({shape.shape_id for shape in slide.shapes}) == 3


def test_a_deck_without_slides_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one slide"):
        write_deck(Deck(slides=()))


@pytest.mark.parametrize("kind", ["bar", "column", "line", "area", "pie", "doughnut", "scatter", "radar"])
@pytest.mark.parametrize("is_stacked", [False, True])
def test_a_chart_is_powerpoints_own_with_its_numbers(kind: str, is_stacked: bool) -> None:
    series = tuple(replace(each, xs=(1, 2, 3), fills=(scenes.RED,)) for each in scenes.chart().series)
    drawn = scenes.chart(kind, series=series, is_stacked=is_stacked, title="T", legend="bottom", family="Inter")
    (shape,) = opened(scenes.deck([drawn])).slides[0].shapes
    assert shape.has_chart
    assert next(iter(shape.chart.plots[0].series)).values[:2] == (1, 2)
    assert shape.chart.has_legend
    ids = shape.chart.element.xpath(".//c:axId/@val | .//c:crossAx/@val")
    assert all(number.isdigit() for number in ids)


@pytest.mark.parametrize("kind", ["bar", "column", "line", "area", "pie", "doughnut", "scatter", "radar"])
def test_a_chart_has_the_range_lines_place_and_shade_of_the_page(kind: str) -> None:
    faint = Colour(0, 0, 255, 0.25)
    series = tuple(
        replace(each, xs=(1, 2, 3), fill=faint, fills=(faint,), line=scenes.RED, is_smooth=True)
        for each in scenes.chart().series
    )
    place = (0.1, 0.05, 0.85, 0.8)
    drawn = scenes.chart(
        kind, series=series, low=0.0, high=9.0, step=3.0, grid=faint, plot=place, hole=0.6, has_labels=True
    )
    (shape,) = opened(scenes.deck([drawn])).slides[0].shapes
    xml = shape.chart.element
    assert xml.xpath(".//c:plotArea/c:layout/c:manualLayout/c:w/@val") == ["0.85"]
    assert "25000" in xml.xpath(".//c:spPr//a:alpha/@val")
    if kind not in {"pie", "doughnut"}:
        axis = shape.chart.value_axis
        assert (axis.minimum_scale, axis.maximum_scale, axis.major_unit) == (0, 9, 3)
    assert xml.xpath(".//c:holeSize/@val") == (["60"] if kind == "doughnut" else [])
    bare = opened(scenes.deck([replace(drawn, grid=None)])).slides[0].shapes[0].chart.element
    assert not bare.xpath(".//c:valAx/c:majorGridlines")


def test_the_line_on_an_area_is_a_line_of_the_same_numbers_without_a_name_in_the_legend() -> None:
    series = tuple(replace(each, line=scenes.RED) for each in scenes.chart().series)
    chart = opened(scenes.deck([scenes.chart("area", series=series, legend="top")])).slides[0].shapes[0].chart
    area, lines = chart.plots
    assert [each.values for each in area.series] == [each.values for each in lines.series]
    assert chart.element.xpath(".//c:ser/c:idx/@val") == ["0", "1", "2", "3"]
    assert chart.element.xpath(".//c:legendEntry/c:idx/@val") == ["2", "3"]
    assert not chart.element.xpath(".//c:areaChart/c:ser/c:spPr/a:ln"), "an area has no border"
    assert set(chart.element.xpath(".//c:lineChart//a:ln//a:srgbClr/@val")) == {"DC1E28"}
    plain = opened(scenes.deck([scenes.chart("area")])).slides[0].shapes[0].chart
    assert len(list(plain.plots)) == 1


def test_lines_over_columns_are_lines_over_columns() -> None:
    first, second = scenes.chart().series
    mixed = scenes.chart(series=(first, replace(second, is_line=True, is_smooth=True)), legend="top", low=0, high=9)
    chart = opened(scenes.deck([mixed])).slides[0].shapes[0].chart
    columns, lines = chart.plots
    assert [[each.name for each in plot.series] for plot in (columns, lines)] == [["x"], ["y"]]
    assert (chart.element.xpath(".//c:lineChart/c:ser/c:smooth/@val"), chart.value_axis.maximum_scale) == (["1"], 9)
    assert not chart.element.xpath(".//c:legendEntry")
    alone = scenes.chart(series=(replace(first, is_line=True),))
    assert len(list(opened(scenes.deck([alone])).slides[0].shapes[0].chart.plots)) == 1


def test_points_are_joined_only_where_the_page_joins_them_and_both_axes_are_its_own() -> None:
    series = tuple(replace(each, xs=(-1, 2, 3), has_line=False, marker=14) for each in scenes.chart().series)
    drawn = scenes.chart("scatter", series=series, low=0.0, high=9.0, x_low=-3.0, x_high=6.0, x_step=3.0)
    chart = opened(scenes.deck([drawn])).slides[0].shapes[0].chart
    assert len(chart.element.xpath(".//c:ser/c:spPr/a:ln/a:noFill")) == 2
    assert chart.element.xpath(".//c:ser/c:marker/c:size/@val") == ["7", "7"]
    axis = chart.category_axis
    assert (axis.minimum_scale, axis.maximum_scale, axis.major_unit) == (-3, 6, 3)
    assert set(chart.element.xpath(".//c:crosses/@val")) == {"min"}


def test_a_net_is_filled_where_the_page_fills_it_and_a_title_lies_where_it_has_it() -> None:
    first, second = scenes.chart().series
    filled = (replace(first, line=scenes.BLUE), second)
    drawn = scenes.chart("radar", series=filled, title="T", title_size=36, title_is_left=True, has_ticks=False)
    chart = opened(scenes.deck([drawn])).slides[0].shapes[0].chart
    assert chart.element.xpath(".//c:radarStyle/@val") == ["filled"]
    assert [len(each.xpath("c:spPr/a:solidFill")) for each in chart.element.xpath(".//c:ser")] == [1, 0]
    assert chart.element.xpath(".//c:title/c:layout//c:x/@val") == ["0.01"]
    assert chart.element.xpath(".//c:title//a:defRPr/@sz") == ["1800"]
    assert chart.element.xpath(".//c:valAx/c:tickLblPos/@val") == ["none"]
    lines = opened(scenes.deck([scenes.chart("radar")])).slides[0].shapes[0].chart
    assert lines.element.xpath(".//c:radarStyle/@val") != ["filled"]
    assert not lines.element.xpath(".//c:smooth"), "the schema has none in nets"


def test_a_chart_that_cannot_be_written_is_its_picture() -> None:
    wrong = [
        Chart(box=Box(0, 0, 9, 9), kind="candles", categories=(), series=scenes.chart().series, fallback=scenes.png()),
        Chart(box=Box(0, 0, 9, 9), kind="pie", categories=(), series=(), fallback=scenes.png()),
        Chart(box=Box(0, 0, 9, 9), kind="pie", categories=(), series=()),
    ]
    slide = opened(scenes.deck([*wrong])).slides[0]
    assert [shape.shape_type for shape in slide.shapes] == [MSO_SHAPE_TYPE.PICTURE] * 2


def test_words_of_a_deck_stay_words() -> None:
    presentation = opened(scenes.everything())
    words = [shape.text_frame.text for shape in presentation.slides[1].shapes if shape.has_text_frame]
    wanted = [
        "".join(run.text for one in box.paragraphs for run in one.runs)
        for box in scenes.texts()
        if isinstance(box, TextBox)
    ]
    assert [each.replace("\x0b", "\n").replace("\n", "") for each in words] == [
        each.replace("\n", "") for each in wanted
    ]
