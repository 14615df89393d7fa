"""Gradients of three colours and more, of which LibreOffice shows two: strips of two colours each, laid over the shape.

The shape under them has the whole gradient. A strip reaches from one colour to the end of the shape, and the next lies
on it, so that there are no seams; LibreOffice paints two colours also where one of them, but not both, goes on.
"""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise

from warren.render.pptx.geometry import moved, rounded_steps
from warren.render.pptx.xml import finite
from warren.render.scene.css import colour_at
from warren.render.scene.paths import Point, curve, cut
from warren.render.scene.scene import Box, Colour, Gradient, Shape, Stop

_SEEN = 30
"""Of 255: how wrong a colour must be to be worth another shape."""
_MOST = 12
_WITHIN = 0.6
_STRAIGHT = 90.0
_EDGE = 0.002
_TURNS = 48


def strips(value: Shape, inset: float = 0.0) -> list[Shape]:
    """Return the strips to lay over a shape, within a line of the width `inset`."""
    fill = value.fill
    if not isinstance(fill, Gradient) or fill.angle is None or value.box.width <= 0 or value.box.height <= 0:
        return []
    stops = _whole(fill.stops)
    if len(stops) > _MOST or any(stop.colour.alpha < 1 for stop in stops) or _is_shown(stops):
        return []
    if fill.angle % _STRAIGHT and len(stops) > 3:
        stops = min(([stops[0], middle, stops[-1]] for middle in stops[1:-1]), key=lambda three: _wrong(stops, three))
    # A little within the shape: programs mix the colours along edges, and twice the edge would be twice as dark.
    inset += _WITHIN
    box = moved(value.box, -inset, -inset, -inset, -inset)
    corners = _outline(value, box, inset)
    made = [_strip(value, box, corners, fill.angle, pair) for pair in pairwise(stops)]
    return [strip for strip in made if strip is not None]


def _whole(stops: tuple[Stop, ...]) -> list[Stop]:
    """Return the stops from 0 to 1, without those that change nothing."""
    first, last = stops[0], stops[-1]
    found = [Stop(0.0, first.colour), *stops, Stop(1.0, last.colour)]
    kept: list[Stop] = []
    for stop in found:
        if kept and stop.at - kept[-1].at <= _EDGE and stop.colour == kept[-1].colour:
            continue
        kept.append(stop)
    return kept


def _is_shown(stops: list[Stop]) -> bool:
    """Whether LibreOffice shows it as it is, or nearly: two colours, one of them flat, or the same from both ends."""
    if len(stops) < 3 or any(b.at - a.at <= _EDGE for a, b in pairwise(stops)):
        return True
    is_even = all(
        abs(a.at + b.at - 1) < 0.02 and a.colour == b.colour for a, b in zip(stops, reversed(stops), strict=True)
    )
    if len(stops) == 3 and (stops[0].colour == stops[1].colour or stops[1].colour == stops[2].colour or is_even):
        return True
    first, last = max(pairwise(stops), key=lambda pair: round(pair[1].at - pair[0].at, 3))
    return _wrong(stops, [Stop(0.0, first.colour), Stop(1.0, last.colour)]) < _SEEN


def _wrong(stops: list[Stop], others: list[Stop]) -> float:
    """Return how far the colours of two gradients are apart, at most."""
    one, other = Gradient(tuple(stops)), Gradient(tuple(others))
    return max(_apart(colour_at(one, step / 20), colour_at(other, step / 20)) for step in range(21))


def _apart(one: Colour, other: Colour) -> float:
    return max(abs(one.red - other.red), abs(one.green - other.green), abs(one.blue - other.blue))


def _outline(value: Shape, box: Box, inset: float) -> list[Point]:
    """Return the corners of a shape, from its own corner."""
    wide, high = box.width, box.height
    if value.polygon:
        return [(x * wide, y * high) for x, y in value.polygon]
    if value.is_ellipse:
        turns = [math.tau * step / _TURNS for step in range(_TURNS)]
        return [(wide / 2 * (1 + math.cos(turn)), high / 2 * (1 + math.sin(turn))) for turn in turns]
    most = min(wide, high) / 2
    a, b, c, d = (min(max(finite(radius) - inset, 0.0), most) for radius in value.radii)
    points: list[Point] = []
    for verb, given in rounded_steps(wide, high, (a, b, c, d)):
        points += curve([points[-1], *given]) if verb == "cubicBezTo" else given
    return points


def _strip(value: Shape, box: Box, corners: list[Point], angle: float, pair: tuple[Stop, Stop]) -> Shape | None:
    """Return the part of a shape behind the first of two colours."""
    turn = math.radians(angle)
    across, down = math.sin(turn), -math.cos(turn)
    length = abs(box.width * across) + abs(box.height * down)

    def way(point: Point) -> float:
        return 0.5 + ((point[0] - box.width / 2) * across + (point[1] - box.height / 2) * down) / length

    kept = cut(corners, [way(point) - pair[0].at for point in corners])
    if len(kept) < 3:
        return None
    left, top = min(x for x, _ in kept), min(y for _, y in kept)
    right, bottom = max(x for x, _ in kept), max(y for _, y in kept)
    if right - left < 0.5 or bottom - top < 0.5:
        return None
    ends = [way((x, y)) for x in (left, right) for y in (top, bottom)]
    start, end = min(ends), max(ends)
    stops = tuple(Stop(min(max((stop.at - start) / (end - start), 0.0), 1.0), stop.colour) for stop in pair)
    return replace(
        value,
        box=moved(box, -left, -top, right - box.width, bottom - box.height),
        fill=Gradient(stops, angle),
        polygon=tuple(((x - left) / (right - left), (y - top) / (bottom - top)) for x, y in kept),
        strokes=(None, None, None, None),
        shadow=None,
    )
