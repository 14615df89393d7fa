"""Computed values as the browser writes them, and as a page would like them to be read."""

from __future__ import annotations

import math

import pytest

from warren.render.scene import css
from warren.render.scene.gradients import gradient, layers, part_of
from warren.render.scene.scene import Colour, Gradient


@pytest.mark.parametrize(
    ("written", "colour"),
    [
        ("rgb(1, 2, 3)", Colour(1, 2, 3)),
        ("rgba(1, 2, 3, 0.5)", Colour(1, 2, 3, 0.5)),
        ("rgb(1 2 3 / 50%)", Colour(1, 2, 3, 0.5)),
        ("color(srgb 1 0 0.5 / 0.25)", Colour(255, 0, 128, 0.25)),
        ("oklab(1 0 0)", Colour(255, 255, 255)),
        ("#ff8000", Colour(255, 128, 0)),
        ("transparent", Colour(0, 0, 0, 0.0)),
        ("rgb(1e9, -5, 3)", Colour(0, 0, 3)),
        ("url(#x)", None),
        ("", None),
        ("rgb(" * 1000, None),
    ],
)
def test_colours_are_read_in_every_form_that_browsers_write(written: str, colour: Colour | None) -> None:
    assert css.colour(written) == colour


def test_what_is_seen_through_is_mixed_with_what_is_behind() -> None:
    assert css.over(Colour(255, 255, 255, 0.5), Colour(0, 0, 0)) == Colour(128, 128, 128)
    assert css.over(Colour(0, 0, 0, 0.0), Colour(0, 0, 0, 0.0)).alpha == 0


def test_shadows_are_read_with_their_colour_first_and_junk_is_none() -> None:
    one, two = css.shadows("rgba(0, 0, 0, 0.2) 0px 4px 12px 2px, rgb(1, 2, 3) 1px 1px 0px 0px inset")
    assert (one.y, one.blur, one.spread, one.is_inner) == (4, 12, 2, False)
    assert two.is_inner
    assert css.shadows("none") == css.shadows("4px rubbish") == []


def test_matrices_of_two_and_three_dimensions_have_a_linear_part() -> None:
    assert css.matrix("matrix(0, 1, -1, 0, 50, 60)") == (0, 1, -1, 0)
    assert css.matrix("matrix3d(2, 0, 0, 0, 0, 3, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1)") == (2, 0, 0, 3)
    assert css.matrix("none") is css.matrix("matrix(1)") is css.matrix("matrix(1e99, 0, 0, 1, 0, 0)") is None


def test_stops_without_a_place_are_spread_between_those_that_have_one() -> None:
    found = gradient("linear-gradient(90deg, rgb(0, 0, 0), rgb(1, 1, 1), rgb(2, 2, 2) 80%, rgb(3, 3, 3))", 100, 50)
    assert found is not None
    assert found.angle == 90
    assert [round(stop.at, 3) for stop in found.stops] == [0, 0.4, 0.8, 1]


def test_a_gradient_to_a_corner_has_the_angle_of_the_box() -> None:
    square = gradient("linear-gradient(to right bottom, rgb(0, 0, 0), rgb(9, 9, 9))", 100, 100)
    wide = gradient("linear-gradient(to right bottom, rgb(0, 0, 0), rgb(9, 9, 9))", 200, 100)
    assert square is not None
    assert wide is not None
    assert square.angle == 135
    assert wide.angle == pytest.approx(180 - math.degrees(math.atan2(100, 200)))


def test_a_radial_gradient_knows_its_middle_and_how_far_it_goes() -> None:
    found = gradient("radial-gradient(circle at 25% 50%, rgb(255, 0, 0), rgba(0, 0, 0, 0) 50%)", 400, 200)
    assert found is not None
    assert (found.cx, found.cy, found.angle) == (0.25, 0.5, None)
    assert found.rx * 400 == pytest.approx(math.hypot(300, 100) / 2)
    assert found.stops[-1].at == 1


@pytest.mark.parametrize(
    "layer",
    [
        "conic-gradient(red, blue)",
        "repeating-linear-gradient(red, blue)",
        'url("x.png")',
        "linear-gradient(",
        "linear-gradient()",
        "linear-gradient(red)",
        "radial-gradient(circle at, red)",
    ],
)
def test_what_powerpoint_has_no_gradient_for_is_none(layer: str) -> None:
    assert gradient(layer, 10, 10) is None


def test_layers_are_parted_outside_of_brackets_only() -> None:
    assert layers('linear-gradient(rgb(0, 0, 0), rgb(1, 1, 1)), url("a,b")') == [
        "linear-gradient(rgb(0, 0, 0), rgb(1, 1, 1))",
        'url("a,b")',
    ]
    assert layers("none") == []


def test_a_part_of_a_gradient_begins_and_ends_with_the_colours_at_its_edges() -> None:
    whole = gradient("linear-gradient(90deg, rgb(0, 0, 0), rgb(200, 200, 200))", 100, 100)
    assert isinstance(whole, Gradient)
    part = part_of(whole, (100, 100), (50, 0, 50, 100))
    assert part.stops[0].colour == Colour(100, 100, 100)
    assert part.stops[-1].colour == Colour(200, 200, 200)
