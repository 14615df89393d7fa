"""Icons of fonts that only the page has, and shadows of boxes without a fill: seen as on the page."""

from __future__ import annotations

from unit.render.snapshots import box, built, raw_of, span, text
from warren.render.scene.build import build_slide, wanted
from warren.render.scene.fonts import Painted
from warren.render.scene.raw import Raster
from warren.render.scene.scene import Colour, Picture, Shape, TextBox
from warren.render.scene.scripts import kinds
from warren.render.scene.snapshot import Rect

PNG = b"\x89PNG of an icon"
ARROW = "\uf062"


def test_a_letter_of_an_icon_font_is_a_picture_and_the_words_beside_it_stay_words() -> None:
    icon = span(0, 0, 14, 24, text(0, 0, ARROW), font_family="Font Awesome 6 Free")
    raw = raw_of(box(0, 0, 400, 24, icon, text(20, 0, "12.3% YoY")))
    (request,), _ = wanted(raw)
    assert (request.kind, request.scale) == ("glyphs", 2.0)
    raw.rasters[request.key] = Raster(0, 0, 18, 27, PNG)
    items = build_slide(raw).items
    (mark,) = (item for item in items if isinstance(item, Picture))
    (words,) = (item for item in items if isinstance(item, TextBox))
    assert mark.data == PNG
    assert "".join(run.text for run in words.paragraphs[0].runs) == "12.3% YoY"
    assert words.box.x == 20


def test_a_plain_letter_that_an_icon_font_paints_is_an_icon_too() -> None:
    raw = raw_of(box(0, 0, 40, 24, text(0, 0, "%"), font_family="Font Awesome 6 Free"))
    raw.fonts["Font Awesome 6 Free", "400", "normal", kinds("%")] = (Painted("Font Awesome 6 Free Solid"),)
    assert [request.kind for request in wanted(raw)[0]] == ["glyphs"]
    plain = raw_of(box(0, 0, 40, 24, text(0, 0, "%")))
    assert wanted(plain)[0] == []


def test_a_box_without_a_fill_has_its_shadow_as_a_picture() -> None:
    raw = raw_of(box(100, 100, 200, 100, box_shadow="rgba(0, 0, 0, 0.1) 0px 10px 15px -3px"))
    (request,), _ = wanted(raw)
    assert request.kind == "cast"
    assert request.rect.meet(Rect(90, 90, 1, 1)) is not None
    raw.rasters[request.key] = Raster(78, 78, 244, 144, PNG)
    assert [type(item) for item in build_slide(raw).items] == [Picture]


def test_a_ring_around_a_box_that_is_seen_through_is_a_line() -> None:
    ring = "rgba(255, 255, 255, 0.3) 0px 0px 0px 2px"
    (line, pill) = built(box(100, 100, 80, 20, background_color="rgba(255, 255, 255, 0.15)", box_shadow=ring)).items
    assert isinstance(line, Shape)
    assert isinstance(pill, Shape)
    assert (line.fill, line.box.x, line.box.width) == (None, 98, 84)
    assert [stroke.width for stroke in line.strokes if stroke] == [2, 2, 2, 2]


def test_an_inner_shadow_that_covers_its_box_is_its_fill() -> None:
    stripe = "rgba(0, 0, 0, 0.5) 0px 0px 0px 9999px inset"
    (cell,) = built(box(0, 0, 100, 30, background_color="rgb(255, 255, 255)", box_shadow=stripe)).items
    assert isinstance(cell, Shape)
    assert cell.fill == Colour(128, 128, 128)


def test_a_gap_that_is_narrower_than_a_space_is_a_smaller_space() -> None:
    key = span(54, 0, 52, 24, text(60, 0, "Ctrl"), background_color="rgb(1, 1, 1)")
    (one,) = (
        item
        for item in built(box(0, 0, 400, 24, text(0, 0, "Use "), key, text(104.5, 0, "+"))).items
        if isinstance(item, TextBox)
    )
    (gap,) = (run for run in one.paragraphs[0].runs if run.text == " " and run.size < 20)
    assert abs(gap.spacing) < 1e-6
