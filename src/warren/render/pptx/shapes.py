"""The paint of boxes: one shape with a line round it, and strips where its sides differ."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from warren.render.pptx.fill import effects, fill, line
from warren.render.pptx.geometry import Step, frame, group, moved, outline, polygon, preset, rounded
from warren.render.pptx.gradients import strips
from warren.render.pptx.xml import element, finite
from warren.render.scene.scene import Gradient, Stroke

if TYPE_CHECKING:
    from warren.render.pptx.page import Page
    from warren.render.scene.scene import Box, Fill, Shadow, Shape

_TOP, _RIGHT, _BOTTOM, _LEFT = range(4)
_BEZIER = 0.4477152502
_SIDES = 4
_STRAIGHT = {0, 90, 180, 270}
_EDGE = 0.002
_MOST_BANDS = 24


def shapes(value: Shape, page: Page) -> list[Any]:
    """`p:sp` and `p:cxnSp` elements from the back to the front."""
    strokes = tuple(_visible(stroke) for stroke in value.strokes)
    around = _common(strokes)
    made: list[Any] = []
    if value.shadow is not None and _is_ring(value.shadow):
        made.append(_ring(value, value.shadow, page))
        value = replace(value, shadow=None)
    if value.fill is not None or around is not None or value.shadow is not None:
        body = _body(value, around, page)
        over = [
            _shape(page, value.name, strip.box, polygon(strip.box, strip.polygon, page.scale), paint=strip.fill)
            for strip in strips(value, around.width if around else 0.0)
        ]
        made.append(group(page.properties(value.name, "Shape"), [body, *over]) if over else body)
        made.extend(_bands(value, page))
    if value.polygon or value.is_ellipse:
        return made
    for side, stroke in enumerate(strokes):
        if stroke is not None and stroke != around:
            made.append(_strip(value, side, stroke, page))
    return made


def _visible(stroke: Stroke | None) -> Stroke | None:
    seen = stroke is not None and finite(stroke.width) > 0 and stroke.colour.alpha > 0 and stroke.style != "none"
    return stroke if seen else None


def _common(strokes: tuple[Stroke | None, ...]) -> Stroke | None:
    """Return the line that goes round the shape: that of all sides, or of three with the fourth a wider one."""
    if None in strokes:
        return None
    stroke, count = Counter(strokes).most_common(1)[0]
    others = [each for each in strokes if each is not None and each != stroke]
    is_hidden = all(stroke is not None and each.width >= stroke.width for each in others)
    return stroke if count >= _SIDES - 1 and is_hidden else None


def _body(value: Shape, around: Stroke | None, page: Page) -> Any:
    # CSS paints a border inside the box, DrawingML half inside and half outside its outline.
    inset = around.width / 2 if around else 0.0
    box = moved(value.box, -inset, -inset, -inset, -inset)
    if value.polygon:
        geometry = polygon(box, value.polygon, page.scale)
    elif value.is_ellipse:
        geometry = preset("ellipse")
    else:
        a, b, c, d = (max(finite(radius) - inset, 0.0) for radius in value.radii)
        geometry = rounded(box, (a, b, c, d), page.scale)
    # The shadow of a shape without fill is that of its line and its text: nothing like CSS.
    shadow = value.shadow if value.fill is not None else None
    return _shape(page, value.name, box, geometry, paint=value.fill, stroke=around, shadow=shadow)


def _is_ring(shadow: Shadow) -> bool:
    """Tell a shadow that is a second border: `0 0 0 4px`."""
    return not shadow.is_inner and shadow.spread > 0 and shadow.blur + abs(shadow.x) + abs(shadow.y) < 1


def _ring(value: Shape, shadow: Shadow, page: Page) -> Any:
    wide = shadow.spread
    box = moved(value.box, wide / 2, wide / 2, wide / 2, wide / 2)
    a, b, c, d = (radius + wide / 2 if radius > 0 else 0.0 for radius in value.radii)
    geometry = preset("ellipse") if value.is_ellipse else rounded(box, (a, b, c, d), page.scale)
    return _shape(page, value.name, box, geometry, paint=None, stroke=Stroke(wide, shadow.colour))


def _bands(value: Shape, page: Page) -> list[Any]:
    """Return rectangles for a gradient without any transition, which LibreOffice would paint in one colour."""
    gradient = value.fill
    if not isinstance(gradient, Gradient) or gradient.angle not in _STRAIGHT or max(value.radii) > 0 or value.polygon:
        return []
    stops = gradient.stops
    pairs = list(pairwise(stops))
    if len(stops) > _MOST_BANDS or any(stop.colour.alpha < 1 for stop in stops):
        return []
    if any(a.colour != b.colour and b.at - a.at > _EDGE for a, b in pairs):
        return []
    bands = [(a.at, b.at, a.colour) for a, b in pairs if b.at - a.at > _EDGE]
    if len({colour for _, _, colour in bands}) < 2:
        return []
    return [
        _shape(page, value.name, _band(value.box, gradient.angle, *ends), preset("rect"), paint=paint)
        for *ends, paint in bands
    ]


def _band(box: Box, angle: float | None, start: float, end: float) -> Box:
    wide, high = box.width, box.height
    sides = {
        0: (0.0, -(1 - end) * high, 0.0, -start * high),
        90: (-start * wide, 0.0, -(1 - end) * wide, 0.0),
        180: (0.0, -start * high, 0.0, -(1 - end) * high),
        270: (-(1 - end) * wide, 0.0, -start * wide, 0.0),
    }
    return moved(box, *sides[round(angle or 0)])


def _shape(
    page: Page,
    name: str,
    box: Box,
    geometry: Any,
    *,
    paint: Fill | None,
    stroke: Stroke | None = None,
    shadow: Shadow | None = None,
) -> Any:
    return element(
        "p:sp",
        None,
        element("p:nvSpPr", None, page.properties(name, "Shape"), element("p:cNvSpPr"), element("p:nvPr")),
        element(
            "p:spPr",
            None,
            frame(box, page.scale),
            geometry,
            fill(paint, box),
            line(stroke, page.scale),
            effects(shadow, page.scale),
        ),
    )


def _strip(value: Shape, side: int, stroke: Stroke, page: Page) -> Any:
    """One side: a line where it is straight, else the crescent that CSS paints beside round corners."""
    # Corners at both ends of a side, in the order of `radii`.
    ends = (value.radii[side], value.radii[(side + 1) % _SIDES])
    if stroke.style in {"dashed", "dotted", "double"} or max(ends) <= stroke.width / 2:
        return _line(value, side, stroke, page)
    return _crescent(value, side, stroke, page)


def _line(value: Shape, side: int, stroke: Stroke, page: Page) -> Any:
    half, box = stroke.width / 2, value.box
    wide, high = box.width, box.height
    sides = {
        _TOP: (0.0, -half, 0.0, half - high),
        _RIGHT: (half - wide, 0.0, -half, 0.0),
        _BOTTOM: (0.0, half - high, 0.0, -half),
        _LEFT: (-half, 0.0, half - wide, 0.0),
    }
    place = frame(replace(moved(box, *sides[side]), flip_x=False, flip_y=False), page.scale)
    place[1].set("cy" if side in {_TOP, _BOTTOM} else "cx", "0")
    return element(
        "p:cxnSp",
        None,
        element("p:nvCxnSpPr", None, page.properties(value.name, "Line"), element("p:cNvCxnSpPr"), element("p:nvPr")),
        element("p:spPr", None, place, preset("line"), line(stroke, page.scale)),
    )


def _crescent(value: Shape, side: int, stroke: Stroke, page: Page) -> Any:
    """Return a side with rounded ends whose neighbours have no border: between the outer and the inner curve."""
    box, thick = value.box, stroke.width
    along = box.width if side in {_TOP, _BOTTOM} else box.height
    across = box.height if side in {_TOP, _BOTTOM} else box.width
    first, last = (min(value.radii[(side + k) % _SIDES], along / 2) for k in (0, 1))
    deep = min(max(first, last, thick), across)
    steps = _crescent_steps(along, first, last, thick)
    turned = [
        (verb, tuple(_turned(point, side, box.width, box.height, deep) for point in points)) for verb, points in steps
    ]
    sides = {
        _TOP: (0.0, 0.0, 0.0, deep - box.height),
        _RIGHT: (deep - box.width, 0.0, 0.0, 0.0),
        _BOTTOM: (0.0, deep - box.height, 0.0, 0.0),
        _LEFT: (0.0, 0.0, deep - box.width, 0.0),
    }
    placed = moved(box, *sides[side])
    return _shape(page, value.name, placed, outline(placed, turned, page.scale), paint=stroke.colour)


def _crescent_steps(along: float, first: float, last: float, thick: float) -> list[Step]:
    """Return the strip at the top, from left to right and back; `_turned` lays it along another side."""
    k = _BEZIER
    return [
        ("moveTo", ((0.0, first),)),
        ("cubicBezTo", ((0.0, first * k), (first * k, 0.0), (first, 0.0))),
        ("lnTo", ((along - last, 0.0),)),
        ("cubicBezTo", ((along - last * k, 0.0), (along, last * k), (along, last))),
        ("cubicBezTo", ((along, _inner(last, thick)), (along - last * k, thick), (along - last, thick))),
        ("lnTo", ((first, thick),)),
        ("cubicBezTo", ((first * k, thick), (0.0, _inner(first, thick)), (0.0, first))),
    ]


def _inner(radius: float, thick: float) -> float:
    return thick + max(radius - thick, 0.0) * _BEZIER


def _turned(point: tuple[float, float], side: int, wide: float, high: float, deep: float) -> tuple[float, float]:
    along, inward = point
    if side == _TOP:
        return along, inward
    if side == _RIGHT:
        return deep - inward, along
    if side == _BOTTOM:
        return wide - along, deep - inward
    return inward, high - along
