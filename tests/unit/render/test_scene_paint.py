"""Boxes, tables, pictures and charts of the page, in the order in which they are painted."""

from __future__ import annotations

import base64
import io

import pytest
from PIL import Image as Pillow

from unit.render.snapshots import Element, box, built, raw_of, span, text
from warren.render.scene.build import build_slide, wanted
from warren.render.scene.pictures import fitted
from warren.render.scene.raw import Raster
from warren.render.scene.scene import Chart, Colour, Gradient, Picture, Shape, Table, TextBox
from warren.render.scene.snapshot import Rect

RED, BLUE = "rgb(255, 0, 0)", "rgb(0, 0, 255)"


def png(width: int = 4, height: int = 2) -> bytes:
    out = io.BytesIO()
    Pillow.new("RGB", (width, height), "red").save(out, "PNG")
    return out.getvalue()


def test_a_box_has_its_fill_borders_radii_and_shadow() -> None:
    style = {
        f"border_{side}_{what}": value
        for side in ("top", "left")
        for what, value in (("width", "3px"), ("style", "dashed"), ("color", BLUE))
    }
    radii = {f"border_{corner}_radius": "12px" for corner in ("top_left", "top_right", "bottom_right", "bottom_left")}
    (shape,) = built(
        box(10, 20, 100, 50, background_color=RED, box_shadow="rgba(0, 0, 0, 0.3) 0px 4px 8px 0px", **style, **radii)
    ).items
    assert isinstance(shape, Shape)
    assert shape.fill == Colour(255, 0, 0)
    assert [stroke and (stroke.width, stroke.style) for stroke in shape.strokes] == [
        (3, "dashed"),
        None,
        None,
        (3, "dashed"),
    ]
    assert shape.radii == (12, 12, 12, 12)
    assert shape.shadow is not None
    assert shape.shadow.blur == 8


def test_opacity_of_ancestors_goes_into_the_fill() -> None:
    (shape,) = built(box(0, 0, 200, 100, box(0, 0, 50, 50, background_color=RED, opacity="0.5"), opacity="0.5")).items
    assert isinstance(shape, Shape)
    assert shape.fill == Colour(255, 0, 0, 0.25)


def test_later_layers_are_painted_over_earlier_ones_whatever_their_place_in_the_page() -> None:
    first, second = box(0, 0, 50, 50, background_color=RED), box(0, 0, 50, 50, background_color=BLUE)
    first.paint, second.paint = 9, 2
    fills = [item.fill for item in built(first, second).items if isinstance(item, Shape)]
    assert fills == [Colour(0, 0, 255), Colour(255, 0, 0)]


def test_the_backgrounds_of_a_slide_and_of_what_it_is_in_are_one() -> None:
    slide = built(background_color="rgba(255, 0, 0, 0.5)")
    assert slide.background == Colour(255, 128, 128)
    graded = built(background_image=f"linear-gradient({RED}, {BLUE})")
    assert isinstance(graded.background, Gradient)
    assert graded.items == ()


def test_a_turned_box_is_upright_with_a_rotation() -> None:
    half = 70.71067811865476
    (shape,) = built(box(50, 50, 2 * half, 2 * half, background_color=RED, transform="matrix(0, 1, -1, 0, 0, 0)")).items
    assert isinstance(shape, Shape)
    assert (shape.box.rotation, round(shape.box.width, 3)) == (90, round(2 * half, 3))


def test_what_overflow_cuts_is_cut_and_round_corners_go_on_inside() -> None:
    clip = {
        "overflow_x": "hidden",
        "overflow_y": "hidden",
        "border_top_left_radius": "20px",
        "border_top_right_radius": "20px",
    }
    bar = box(0, 0, 400, 10, background_color=BLUE)
    disc = box(
        350,
        150,
        100,
        100,
        background_color=RED,
        **{f"border_{c}_radius": "50%" for c in ("top_left", "top_right", "bottom_right", "bottom_left")},
    )
    gone = box(500, 300, 50, 50, background_color=RED)
    shapes = [item for item in built(box(0, 0, 400, 200, bar, disc, gone, **clip)).items if isinstance(item, Shape)]
    assert [shape.radii for shape in shapes[:1]] == [(10, 10, 0, 0)]
    assert (shapes[1].box.x, shapes[1].box.width, len(shapes[1].polygon) > 10) == (350, 50, True)
    assert len(shapes) == 2


def test_a_clip_path_is_a_polygon() -> None:
    (shape,) = built(
        box(0, 0, 100, 100, background_color=RED, clip_path="polygon(50% 0px, 100% 100%, 0px 100px)")
    ).items
    assert isinstance(shape, Shape)
    assert shape.polygon == ((0.5, 0), (1, 1), (0, 1))


def test_paint_that_powerpoint_lacks_is_asked_for_as_a_picture_and_placed_where_it_was() -> None:
    raw = raw_of(box(10, 10, 100, 100, background_image=f"conic-gradient({RED}, {BLUE})"))
    (request,), images = wanted(raw)
    assert (request.kind, request.rect.width, images) == ("own", 100, set())
    raw.rasters[request.key] = Raster(10, 10, 100, 100, png())
    (picture,) = build_slide(raw).items
    assert isinstance(picture, Picture)
    assert (picture.box.x, picture.box.width) == (10, 100)


def test_an_image_is_its_own_file_cut_as_the_page_shows_it() -> None:
    address = "data:image/png;base64," + base64.b64encode(png()).decode()
    image = Element("img", (0, 0, 100, 100), style={"object-fit": "cover"}, attributes={"alt": "A dot"}, source=address)
    (picture,) = built(image).items
    assert isinstance(picture, Picture)
    assert (picture.crop, picture.alt, picture.data) == ((0.25, 0, 0.25, 0), "A dot", png())


@pytest.mark.parametrize(
    ("fit", "place"),
    [
        ("fill", (0, 0, 100, 100)),
        ("contain", (0, 25, 100, 50)),
        ("none", (30, 40, 40, 20)),
        ("scale-down", (30, 40, 40, 20)),
    ],
)
def test_an_image_stands_in_its_box_as_object_fit_says(fit: str, place: tuple[float, ...]) -> None:
    found = fitted(fit, "50% 50%", Rect(0, 0, 100, 100), (40, 20))
    assert found is not None
    assert (found[0].x, found[0].y, found[0].width, found[0].height) == place


def test_a_table_is_a_table_with_its_cells_and_what_spans_them() -> None:
    def cell(x: float, y: float, width: float, words: str, **style: str) -> Element:
        return box(x, y, width, 30, text(x + 5, y + 3, words), display="table-cell", padding_left="5px", **style)

    head = box(0, 0, 200, 30, cell(0, 0, 200, "Both"), display="table-row", background_color=BLUE)
    row = box(
        0, 30, 200, 30, cell(0, 30, 120, "Left"), cell(120, 30, 80, "Right", background_color=RED), display="table-row"
    )
    slide = built(box(0, 0, 200, 60, head, row, display="table"))
    (table,) = slide.items
    assert isinstance(table, Table)
    assert (table.column_widths, table.row_heights) == ((120, 80), (30, 30))
    first, gap = table.cells[0]
    assert first is not None
    assert (first.columns, gap, first.fill) == (2, None, Colour(0, 0, 255))
    last = table.cells[1][1]
    assert last is not None
    assert (last.fill, last.paragraphs[0].runs[0].text) == (Colour(255, 0, 0), "Right")


def test_cells_in_round_corners_are_painted_by_a_shape_under_the_table() -> None:
    def row(y: float, *fills: str) -> Element:
        made = [
            box(100 * at, y, 100, 30, text(100 * at + 5, y + 3, "x"), display="table-cell", background_color=fill)
            for at, fill in enumerate(fills)
        ]
        return box(0, y, 100 * len(fills), 30, *made, display="table-row")

    corners = {f"border_{corner}_radius": "12px" for corner in ("top_left", "top_right", "bottom_right", "bottom_left")}
    table = box(0, 0, 200, 90, row(0, BLUE, BLUE), row(30, RED, BLUE), row(60, RED, BLUE), display="table")
    holder = box(0, 0, 200, 90, table, overflow_x="hidden", overflow_y="hidden", **corners)
    head, left, right, made = built(holder).items
    assert isinstance(head, Shape)
    assert (head.box.width, head.fill, head.radii) == (200, Colour(0, 0, 255), (12, 12, 0, 0))
    assert isinstance(left, Shape)
    assert isinstance(right, Shape)
    assert (left.radii, left.fill, right.radii) == ((0, 0, 0, 12), Colour(255, 0, 0), (0, 0, 12, 0))
    assert isinstance(made, Table)
    assert [[cell is not None and cell.fill is None for cell in cells] for cells in made.cells] == [
        [True, True],
        [False, False],
        [True, True],
    ]


def test_a_cell_with_more_than_text_has_its_content_over_the_table() -> None:
    chip = span(5, 3, 40, 24, text(10, 3, "chip"), background_color=RED)
    row = box(0, 0, 100, 30, box(0, 0, 100, 30, chip, display="table-cell"), display="table-row")
    kinds = [type(item) for item in built(box(0, 0, 100, 30, row, display="table")).items]
    assert kinds == [Table, Shape, TextBox]


def test_a_chart_that_its_library_describes_is_a_chart_and_nonsense_is_a_picture() -> None:
    def slide(said: object) -> object:
        raw = raw_of(Element("canvas", (0, 0, 300, 200)))
        raw.rasters["2:tree"] = Raster(0, 0, 300, 200, png())
        raw.charts[2] = said
        return build_slide(raw).items[0]

    good = {"type": "bar", "labels": ["a", "b"], "series": [{"name": "n", "values": [1, None], "colour": "#ff0000"}]}
    chart = slide(good)
    assert isinstance(chart, Chart)
    assert (chart.kind, chart.categories, chart.series[0].values, chart.series[0].fill) == (
        "column",
        ("a", "b"),
        (1, None),
        Colour(255, 0, 0),
    )
    worst = {"type": "bar", "labels": [{}], "series": [{"values": ["x", float("nan"), 1e300]}]}
    nonsense: tuple[object, ...] = (None, [], "bar", {"type": {}}, {**good, "series": [{}]}, worst)
    for said in nonsense:
        assert isinstance(slide(said), Picture)


def test_a_chart_has_the_range_lines_place_and_shade_that_the_page_gave_it() -> None:
    raw = raw_of(Element("canvas", (0, 0, 300, 200)))
    series = {"name": "n", "values": [1, 2], "filled": True, "colour": "#0000ff", "area": "rgba(0, 0, 255, 0.2)"}
    raw.charts[2] = {
        "type": "line",
        "labels": ["a", "b"],
        "series": [series],
        "low": 0,
        "high": 90,
        "step": 10,
        "grid": "rgba(0, 0, 0, 0.1)",
        "plot": [0.1, -0.001, 0.9, 0.8],
        "family": "'Helvetica Neue', Arial",
    }
    chart = build_slide(raw).items[0]
    assert isinstance(chart, Chart)
    assert (chart.low, chart.high, chart.step, chart.family) == (0, 90, 10, "Arial")
    assert (chart.grid, chart.plot) == (Colour(0, 0, 0, 0.1), (0.1, 0, 0.9, 0.8))
    assert (chart.kind, chart.series[0].fill, chart.series[0].line) == (
        "area",
        Colour(0, 0, 255, 0.2),
        Colour(0, 0, 255),
    )
    raw.charts[2] |= {"low": 5, "high": 5, "plot": [0, 0, 9, float("nan")], "grid": "", "hole": "x", "family": {}}
    odd = build_slide(raw).items[0]
    assert isinstance(odd, Chart)
    assert (odd.low, odd.high, odd.step, odd.plot, odd.grid, odd.family) == (None, None, None, None, None, "Arial")


def test_a_net_and_points_have_the_axes_and_the_paint_of_the_page() -> None:
    raw = raw_of(Element("canvas", (0, 0, 300, 200)))
    filled = {"name": "n", "values": [1, 2, 3], "filled": True, "colour": "#0000ff", "opacity": 0.3}
    raw.charts[2] = {"type": "radar", "labels": ["a", "b", "c"], "series": [filled], "ticks": False, "title_left": True}
    net = build_slide(raw).items[0]
    assert isinstance(net, Chart)
    assert (net.kind, net.has_ticks, net.title_is_left) == ("radar", False, True)
    assert (net.series[0].fill, net.series[0].line) == (Colour(0, 0, 255, 0.3), Colour(0, 0, 255))
    drawn = [{"values": [1], "as": "bar"}, {"values": [2], "as": "line"}]
    raw.charts[2] = {"type": "bar", "labels": ["a"], "series": drawn}
    both = build_slide(raw).items[0]
    assert isinstance(both, Chart)
    assert [each.is_line for each in both.series] == [False, True]
    points = {"values": [1, 2], "xs": [-1, 4], "lined": False, "marker": 1e9}
    raw.charts[2] = {"type": "scatter", "series": [points], "x_low": -2, "x_high": 4, "x_step": 2}
    cloud = build_slide(raw).items[0]
    assert isinstance(cloud, Chart)
    assert (cloud.x_low, cloud.x_high, cloud.x_step, cloud.low) == (-2, 4, 2, None)
    assert (cloud.series[0].has_line, cloud.series[0].marker) == (False, 72)


def test_a_chart_library_that_draws_in_a_container_has_its_canvas_replaced() -> None:
    raw = raw_of(box(0, 0, 300, 200, Element("canvas", (0, 0, 300, 200))))
    raw.charts[2] = {"type": "pie", "labels": ["a"], "series": [{"values": [1], "colours": ["#00ff00"]}]}
    (only,) = build_slide(raw).items
    assert isinstance(only, Chart)
    assert (only.kind, only.series[0].fills) == ("pie", (Colour(0, 255, 0),))


def test_the_words_of_a_drawing_are_text_over_its_picture() -> None:
    words = Element(
        "text", (10, 10, 50, 12), [text(10, 10, "label", width=50, height=12)], {"fill": RED, "text-anchor": "middle"}
    )
    raw = raw_of(Element("svg", (0, 0, 100, 100), [words]))
    raw.rasters["2:tree"] = Raster(0, 0, 100, 100, png())
    picture, label = build_slide(raw).items
    assert isinstance(picture, Picture)
    assert isinstance(label, TextBox)
    assert (label.paragraphs[0].align, label.paragraphs[0].runs[0].fill) == ("center", Colour(255, 0, 0))
