"""Colours, gradients, lines and shadows as DrawingML."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise
from typing import Any

from warren.render.pptx.xml import Scale, clamped, element, finite
from warren.render.scene.scene import Box, Colour, Fill, Gradient, Shadow, Stop, Stroke

_OPAQUE = 0.995
_DASHES = {"dashed": "dash", "dotted": "sysDot"}


def colour(value: Colour, alpha: float = 1.0) -> Any:
    """`a:srgbClr`."""
    hexadecimal = "".join(f"{int(clamped(part, 0, 255)):02X}" for part in (value.red, value.green, value.blue))
    opacity = clamped(value.alpha * alpha, 0, 1)
    shade = element("a:alpha", {"val": round(opacity * 100_000)}) if opacity < _OPAQUE else None
    return element("a:srgbClr", {"val": hexadecimal}, shade)


def solid(value: Colour, alpha: float = 1.0) -> Any:
    """`a:solidFill`."""
    return element("a:solidFill", None, colour(value, alpha))


def fill(value: Fill | None, box: Box, alpha: float = 1.0) -> Any:
    """Return what fills a shape of the size of `box`."""
    if value is None:
        return element("a:noFill")
    if isinstance(value, Colour):
        return solid(value, alpha)
    stops = _ordered(value.stops)
    if not stops:
        return element("a:noFill")
    if len(stops) == 1:
        return solid(stops[0].colour, alpha)
    return _linear(value.angle, stops, alpha) if value.angle is not None else _radial(value, stops, box, alpha)


def text_fill(value: Fill, box: Box, alpha: float = 1.0) -> Any:
    """Return what fills letters."""
    if isinstance(value, Colour):
        return solid(value, alpha)
    stops = _ordered(value.stops)
    if len(stops) > 1:
        # LibreOffice paints letters in the second colour of a gradient. Where the gradient begins, with the first one
        # again behind it, the colour half way is the second, and changes nothing in PowerPoint.
        start = Stop(0.0, stops[0].colour)
        value = replace(value, stops=(start, Stop(0.0, _half_way(stops)), start, *stops))
    return fill(value, box, alpha) if stops else solid(Colour(0, 0, 0), alpha)


def _half_way(stops: list[Stop]) -> Colour:
    for one, two in pairwise([Stop(0.0, stops[0].colour), *stops, Stop(1.0, stops[-1].colour)]):
        if two.at >= 0.5:
            way = (0.5 - one.at) / (two.at - one.at) if two.at > one.at else 1.0
            pairs = zip(_parts(one.colour), _parts(two.colour), strict=True)
            red, green, blue = (round(a + (b - a) * way) for a, b in pairs)
            return Colour(red, green, blue, one.colour.alpha + (two.colour.alpha - one.colour.alpha) * way)
    return stops[-1].colour


def _parts(value: Colour) -> tuple[int, int, int]:
    return value.red, value.green, value.blue


def _ordered(stops: tuple[Stop, ...]) -> list[Stop]:
    """Return stops as CSS reads them: none before an earlier one, all within 0 to 1."""
    ordered: list[Stop] = []
    for stop in stops:
        least = ordered[-1].at if ordered else 0.0
        ordered.append(Stop(clamped(stop.at, least, 1), stop.colour))
    return ordered


def _stop_list(stops: list[Stop], alpha: float) -> Any:
    marks = [
        element("a:gs", {"pos": round(stop.at * 100_000)}, colour(stop.colour, alpha))
        for stop in [*([Stop(0.0, stops[0].colour)] if stops[0].at > 0 else []), *stops]
    ]
    if stops[-1].at < 1:
        marks.append(element("a:gs", {"pos": 100_000}, colour(stops[-1].colour, alpha)))
    return element("a:gsLst", None, *marks)


def _linear(angle: float, stops: list[Stop], alpha: float) -> Any:
    # CSS counts from upwards, DrawingML from the right, both clockwise. Unscaled, both let the first and the last
    # colour lie in corners of the box, so that boxes that are not square need no more than this.
    turned = (finite(angle) - 90) % 360
    line = element("a:lin", {"ang": round(turned * 60_000) % 21_600_000, "scaled": 0})
    drawn = stops if stops[0].colour.alpha * alpha >= _OPAQUE else _uneven(stops)
    return element("a:gradFill", {"rotWithShape": 1}, _stop_list(drawn, alpha), line)


def _radial(gradient: Gradient, stops: list[Stop], box: Box, alpha: float) -> Any:
    across, down = clamped(gradient.cx, 0, 1), clamped(gradient.cy, 0, 1)
    reach = _reach(gradient, box)
    drawn = [Stop(clamped(stop.at * reach, 0, 1), stop.colour) for stop in stops]
    middle = element(
        "a:fillToRect",
        {
            "l": round(across * 100_000),
            "t": round(down * 100_000),
            "r": round((1 - across) * 100_000),
            "b": round((1 - down) * 100_000),
        },
    )
    path = element("a:path", {"path": "circle"}, middle)
    return element("a:gradFill", {"rotWithShape": 1}, _stop_list(_uneven(drawn), alpha), path)


def _uneven(stops: list[Stop]) -> list[Stop]:
    # LibreOffice paints circles of one opacity one on another, with a moiré where they meet, and a dark line round
    # a see-through gradient; with an invisible difference it paints the gradient as a whole.
    if len({stop.colour.alpha for stop in stops}) > 1:
        return stops
    last = stops[-1]
    return [*stops[:-1], Stop(last.at, replace(last.colour, alpha=max(last.colour.alpha - 0.01, 0)))]


def _reach(gradient: Gradient, box: Box) -> float:
    """How far along DrawingML's way, which ends in the farthest corner, the last CSS colour is."""
    if gradient.rx <= 0 or gradient.ry <= 0:
        return 1.0
    wide, high = max(finite(box.width), 1.0), max(finite(box.height), 1.0)
    far_x = max(gradient.cx, 1 - gradient.cx) * wide
    far_y = max(gradient.cy, 1 - gradient.cy) * high
    corner = math.hypot(far_x, far_y)
    return clamped(math.sqrt(gradient.rx * wide * gradient.ry * high) / corner, 0.02, 1) if corner > 0 else 1.0


def line(stroke: Stroke | None, scale: Scale, tag: str = "a:ln") -> Any:
    """Return a line, or the word that there is none."""
    if stroke is None or finite(stroke.width) <= 0 or stroke.colour.alpha <= 0:
        return element(tag, None, element("a:noFill"))
    dash = element("a:prstDash", {"val": _DASHES.get(stroke.style, "solid")})
    attributes = {
        "w": scale.line(stroke.width),
        "cap": "flat",
        "cmpd": "dbl" if stroke.style == "double" else "sng",
        "algn": "ctr",
    }
    join = None if tag != "a:ln" else element("a:miter", {"lim": 800_000})
    return element(tag, attributes, solid(stroke.colour), dash, join)


def effects(shadow: Shadow | None, scale: Scale, alpha: float = 1.0) -> Any:
    """`a:effectLst` with one shadow, or None."""
    if shadow is None or shadow.colour.alpha <= 0:
        return None
    across, down = finite(shadow.x), finite(shadow.y)
    # The spread goes into the blur, so that the shadow reaches as far: LibreOffice scales shadows about a corner.
    blur = max(finite(shadow.blur), 0.0)
    reach = blur if shadow.is_inner else max(blur + finite(shadow.spread), 0.0)
    if 0 < reach < blur:
        alpha *= max(reach / blur, 0.5)
    attributes: dict[str, Any] = {
        "blurRad": scale.inset(reach),
        "dist": scale.inset(math.hypot(across, down)),
        "dir": round(math.degrees(math.atan2(down, across)) % 360 * 60_000) % 21_600_000,
    }
    if shadow.is_inner:
        return element("a:effectLst", None, element("a:innerShdw", attributes, colour(shadow.colour, alpha)))
    attributes |= {"algn": "ctr", "rotWithShape": 0}
    return element("a:effectLst", None, element("a:outerShdw", attributes, colour(shadow.colour, alpha)))
