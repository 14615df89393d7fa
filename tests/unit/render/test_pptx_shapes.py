"""Shapes, pictures and tables: their outlines, paint, parts and sizes."""

from __future__ import annotations

import io
import zipfile
from typing import Any

import pytest

from unit.render import scenes
from unit.render.ooxml import name
from unit.render.test_pptx_deck import opened
from warren.render.pptx.deck import write_deck
from warren.render.pptx.svg import safe_svg
from warren.render.scene.scene import Box, Colour, Gradient, Picture, Shadow, Shape, Stop, Stroke

LINE = Stroke(4, scenes.BLUE)


def drawn(*shapes: Shape) -> list[Any]:
    """The elements that shapes became."""
    return [each.element for each in opened(scenes.deck([*shapes])).slides[0].shapes]


def found(element: Any, tag: str) -> Any:
    """The first of this name in an element."""
    return next(each for each in element.iter() if name(each) == tag)


@pytest.mark.parametrize(
    ("radii", "size", "outline"),
    [
        ((0, 0, 0, 0), (200, 100), "rect"),
        ((10, 10, 10, 10), (200, 100), "roundRect"),
        ((999, 999, 999, 999), (200, 100), "roundRect"),
        ((50, 50, 50, 50), (100, 100), "ellipse"),
        ((10, 10, 0, 0), (200, 100), "round2SameRect"),
    ],
)
def test_outlines_are_powerpoints_own_where_it_has_them(radii: Any, size: tuple[int, int], outline: str) -> None:
    (shape,) = drawn(Shape(box=Box(0, 0, *size), fill=scenes.RED, radii=radii))
    assert found(shape, "prstGeom").get("prst") == outline


def test_other_corners_are_drawn() -> None:
    (shape,) = drawn(Shape(box=Box(0, 0, 200, 100), fill=scenes.RED, radii=(60, 10, 30, 0)))
    assert [name(each) for each in found(shape, "path")].count("cubicBezTo") == 4


def test_a_border_lies_inside_its_box() -> None:
    (shape,) = opened(scenes.deck([Shape(box=Box(10, 10, 100, 50), strokes=(LINE,) * 4)])).slides[0].shapes
    assert (shape.left, shape.width, shape.height) == (12 * 6_350, 96 * 6_350, 46 * 6_350)
    assert shape.line.width == 4 * 6_350


def test_sides_that_differ_are_lines_of_their_own() -> None:
    box = Box(10, 10, 100, 50)
    body, top, left = drawn(Shape(box=box, fill=scenes.WHITE, strokes=(LINE, None, None, Stroke(6, scenes.RED))))
    assert [name(each) for each in (body, top, left)] == ["p:sp", "p:cxnSp", "p:cxnSp"]
    place, size = found(top, "off"), found(top, "ext")
    assert (place.get("y"), size.get("cx"), size.get("cy")) == (str(12 * 6_350), str(100 * 6_350), "0")


def test_one_wider_side_lies_over_the_line_round_the_others() -> None:
    thin = Stroke(1, scenes.GREY)
    shapes = drawn(
        Shape(box=Box(0, 0, 90, 90), fill=scenes.WHITE, strokes=(LINE, thin, thin, thin), radii=(9, 9, 9, 9))
    )
    assert len(shapes) == 2
    assert found(shapes[0], "ln").get("w") == "6350"
    assert found(shapes[1], "custGeom") is not None


@pytest.mark.parametrize(("css", "drawingml"), [(0, 270), (90, 0), (135, 45), (180, 90), (-45, 225), (450, 0)])
def test_gradients_point_where_css_says(css: float, drawingml: int) -> None:
    (shape,) = drawn(Shape(box=Box(0, 0, 90, 20), fill=Gradient((Stop(0, scenes.RED), Stop(1, scenes.BLUE)), css)))
    assert found(shape, "lin").get("ang") == str(drawingml * 60_000)
    assert found(shape, "lin").get("scaled") == "0"


def test_stops_are_in_order_and_reach_both_ends() -> None:
    stops = (Stop(0.2, scenes.RED), Stop(0.7, scenes.BLUE), Stop(0.5, scenes.WHITE))
    (shape,) = drawn(Shape(box=Box(0, 0, 90, 20), fill=Gradient(stops, 90)))
    places = [int(each.get("pos")) for each in shape.iter() if name(each) == "gs"]
    assert places == [0, 20_000, 70_000, 70_000, 100_000]


def test_a_gradient_without_transition_is_cut_into_bands() -> None:
    halves = Gradient((Stop(0, scenes.RED), Stop(0.25, scenes.RED), Stop(0.25, scenes.BLUE), Stop(1, scenes.BLUE)), 180)
    _, first, second = opened(scenes.deck([Shape(box=Box(0, 0, 100, 80), fill=halves)])).slides[0].shapes
    assert (first.top, first.height) == (0, 20 * 6_350)
    assert (second.top, second.height) == (20 * 6_350, 60 * 6_350)


@pytest.mark.parametrize(
    ("stops", "angle", "strips"),
    [
        (((0, scenes.RED), (1, scenes.BLUE)), 135, 0),
        (((0, scenes.RED), (0.4, scenes.BLUE), (1, scenes.WHITE)), 135, 2),
        (((0, scenes.RED), (0.3, scenes.BLUE), (0.6, scenes.WHITE), (1, scenes.RED)), 135, 2),
        (((0, scenes.RED), (0.3, scenes.BLUE), (0.6, scenes.WHITE), (1, scenes.RED)), 90, 3),
        (((0, scenes.RED), (0.5, scenes.BLUE), (1, scenes.RED)), 90, 0),
        (((0, scenes.RED), (0.5, scenes.BLUE), (1, Colour(210, 30, 40))), 90, 2),
        (((0, scenes.RED), (0.5, scenes.RED), (1, scenes.BLUE)), 90, 0),
        (((0, scenes.RED), (0.5, scenes.GREY), (1, scenes.BLUE)), 90, 0),
    ],
)
def test_a_gradient_of_more_than_two_colours_has_strips_of_two_over_it(
    stops: tuple[tuple[float, Colour], ...], angle: float, strips: int
) -> None:
    fade = Gradient(tuple(Stop(at, colour) for at, colour in stops), angle)
    (made,) = drawn(Shape(box=Box(100, 100, 200, 100), fill=fade, radii=(20, 20, 20, 20), strokes=(LINE,) * 4))
    if not strips:
        assert name(made) == "p:sp"
        return
    whole, *parts = [each for each in made if name(each) == "p:sp"]
    assert len(parts) == strips
    assert len([each for each in whole.iter() if name(each) == "gs"]) == len(stops)
    for part in parts:
        colours = {each[0].get("val") for each in part.iter() if name(each) == "gs"}
        assert len(colours) == 2
        off, size = found(part, "off"), found(part, "ext")
        assert int(off.get("x")) >= (100 + LINE.width) * 6_350, "within the line"
        assert int(off.get("x")) + int(size.get("cx")) <= (300 - LINE.width) * 6_350


def test_a_background_of_three_colours_has_strips_over_it_too() -> None:
    fade = Gradient((Stop(0, scenes.RED), Stop(0.5, scenes.BLUE), Stop(1, scenes.WHITE)), 135)
    slide = opened(scenes.deck([], background=fade)).slides[0]
    assert [shape.name for shape in slide.shapes] == ["background", "background"]


def test_a_shadow_needs_a_filled_shape() -> None:
    shade = Shadow(3, 4, 10, 0, Colour(0, 0, 0, 0.5))
    filled, empty = drawn(
        Shape(box=Box(0, 0, 9, 9), fill=scenes.WHITE, shadow=shade),
        Shape(box=Box(0, 0, 9, 9), strokes=(LINE,) * 4, shadow=shade),
    )
    assert found(filled, "outerShdw").get("dist") == str(5 * 6_350)
    assert not [each for each in empty.iter() if name(each) == "effectLst"]


def test_a_shadow_without_blur_is_a_ring() -> None:
    ring = Shadow(0, 0, 0, 4, scenes.RED)
    first, second = (
        opened(scenes.deck([Shape(box=Box(10, 10, 90, 90), fill=scenes.WHITE, shadow=ring)])).slides[0].shapes
    )
    assert (first.left, first.width, first.line.width) == (8 * 6_350, 94 * 6_350, 4 * 6_350)
    assert second.left == 10 * 6_350


def test_the_same_picture_is_one_part() -> None:
    items = [Picture(box=Box(10 * number, 0, 9, 9), data=scenes.png()) for number in range(5)]
    with zipfile.ZipFile(io.BytesIO(write_deck(scenes.deck([*items], [*items])))) as archive:
        assert len([each for each in archive.namelist() if each.startswith("ppt/media/")]) == 1


def test_a_picture_is_cut_rounded_named_and_linked() -> None:
    slide = opened(scenes.deck(scenes.pictures())).slides[0]
    first, second, third = slide.shapes
    assert first.element.xpath(".//p:cNvPr/@descr") == ['A "picture" & more']
    assert first.click_action.hyperlink.address == "https://example.com/"
    assert second.crop_left == pytest.approx(0.2)
    assert found(second.element, "prstGeom").get("prst") == "ellipse"
    assert third.image.content_type == "image/png"
    assert found(third.element, "alphaModFix").get("amt") == "40000"


def test_a_drawing_is_kept_beside_its_picture_and_can_do_nothing() -> None:
    with zipfile.ZipFile(io.BytesIO(write_deck(scenes.deck(scenes.pictures())))) as archive:
        (drawing,) = [each for each in archive.namelist() if each.endswith(".svg")]
        assert b"script" not in archive.read(drawing)
        assert b"<rect" in archive.read(drawing)
        assert "image/svg+xml" in archive.read("[Content_Types].xml").decode()


@pytest.mark.parametrize(
    "drawing",
    [
        b'<image href="http://a/x.png"/>',
        b'<use href="file:///etc/passwd"/>',
        b'<a href="javascript:alert(1)"/>',
        b'<rect onload="alert(1)"/>',
        b'<rect style="fill:url(http://a/x)"/>',
        b"<style>@import 'http://a/x.css';</style>",
        b"<foreignObject><p>alert(1)</p></foreignObject>",
        b"<?xml-stylesheet href='http://a/x.css'?>",
    ],
)
def test_drawings_reach_nothing(drawing: bytes) -> None:
    kept = safe_svg(b'<svg xmlns="http://www.w3.org/2000/svg">' + drawing + b"</svg>")
    assert kept is not None
    assert not any(word in kept for word in (b"http://a", b"passwd", b"alert"))


@pytest.mark.parametrize(
    "drawing",
    [
        b"",
        b"<html/>",
        b"<svg",
        b'<!DOCTYPE svg [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;">]><svg>&b;</svg>',
        b'<!DOCTYPE svg [<!ENTITY a SYSTEM "file:///etc/passwd">]><svg xmlns="http://www.w3.org/2000/svg">&a;</svg>',
    ],
)
def test_what_is_no_drawing_is_left_out(drawing: bytes) -> None:
    assert safe_svg(drawing) is None


def test_a_table_has_its_sizes_spans_and_borders() -> None:
    (shape,) = opened(scenes.deck([scenes.table()])).slides[0].shapes
    table = shape.table
    assert [column.width for column in table.columns] == [200 * 6_350, 300 * 6_350, 300 * 6_350]
    assert {row.height for row in table.rows} == {60 * 6_350}
    assert (table.cell(0, 1).span_width, table.cell(1, 0).span_height) == (2, 2)
    assert table.cell(0, 2).is_spanned
    assert table.cell(2, 0).is_spanned
    assert [cell.text for cell in table.iter_cells()] == ["Head", "Wide", "", "Tall", "b", "c", "", "d", ""]
    head = table.cell(0, 0)._tc
    assert found(head, "lnT").get("w") == "12700"
    assert [name(each) for each in found(head, "lnL")] == ["noFill"]


def test_cells_seat_their_text_without_making_rows_grow() -> None:
    (shape,) = opened(scenes.deck([scenes.table()])).slides[0].shapes
    cell = shape.table.cell(0, 0)
    # 60 px high, a line of 28.8 px whose baseline, 24 px down, is wanted at 40: 16 above it and 15.2 below.
    assert cell.margin_top == pytest.approx(0.8 * 6_350, abs=2)
    assert cell.margin_bottom == 0
