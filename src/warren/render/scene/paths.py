"""Polygons: from the outlines of SVG paths, and cut along a line."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

Point = tuple[float, float]
_WORD = re.compile(r"[a-zA-Z]|[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?")
_COUNTS = {"M": 2, "L": 2, "H": 1, "V": 1, "C": 6, "S": 4, "Q": 4, "T": 2, "Z": 0}
_STEPS = 6
_LONGEST = 20_000


def contours(drawn: str) -> list[list[Point]]:
    """Return the closed lines of a path's `d`; none where it has arcs, or is none."""
    if len(drawn) > _LONGEST:
        return []
    found: list[list[Point]] = []
    pen: Point = (0.0, 0.0)
    handle, last = pen, ""
    for verb, values in _steps(drawn):
        if verb.upper() not in _COUNTS:
            return []
        if verb in "zZ":
            pen = found[-1][0] if found else pen
            last = "Z"
            continue
        if verb in "mM" or last == "Z" or not found:
            start = _points(verb, values, pen)[-1] if verb in "mM" else pen
            found.append([start])
            pen, last, handle = start, "M", start
            if verb in "mM":
                continue
        corners, handle = _drawn(verb, values, pen, handle if last in "CSQT" else pen)
        found[-1] += corners
        pen, last = corners[-1], verb.upper()
        handle = handle if last in "CSQT" else pen
    return [each for each in found if len(each) > 2]


def _steps(drawn: str) -> Iterator[tuple[str, list[float]]]:
    verb, values = "", []  # type: tuple[str, list[float]]
    for word in _WORD.findall(drawn):
        if word.isalpha():
            verb, values = word, []
            if not _COUNTS.get(word.upper()):
                yield word, []
            continue
        values.append(float(word))
        if len(values) == _COUNTS.get(verb.upper(), 0):
            yield verb, values
            values = []
            # More numbers after a move are lines.
            verb = {"M": "L", "m": "l"}.get(verb, verb)


def _points(verb: str, values: list[float], pen: Point) -> list[Point]:
    x, y = pen if verb.islower() else (0.0, 0.0)
    if verb in "hH":
        return [(x + values[0], pen[1])]
    if verb in "vV":
        return [(pen[0], y + values[0])]
    return [(x + values[at], y + values[at + 1]) for at in range(0, len(values), 2)]


def _drawn(verb: str, values: list[float], pen: Point, handle: Point) -> tuple[list[Point], Point]:
    """Return the corners of one step, and the handle that a smooth curve behind it goes on from."""
    points = _points(verb, values, pen)
    kind = verb.upper()
    mirrored = (2 * pen[0] - handle[0], 2 * pen[1] - handle[1])
    if kind in "ST":
        points = [mirrored, *points]
    if kind not in "CSQT":
        return points, points[-1]
    return curve([pen, *points]), points[-2]


def curve(points: list[Point]) -> list[Point]:
    """Return corners on a Bézier curve of three or four points, without its first."""
    made: list[Point] = []
    for step in range(1, _STEPS + 1):
        way, left = step / _STEPS, points
        while len(left) > 1:
            left = [(a[0] + (b[0] - a[0]) * way, a[1] + (b[1] - a[1]) * way) for a, b in pairwise(left)]
        made.append(left[0])
    return made


def cut(points: list[Point], distances: list[float]) -> list[Point]:
    """Return the part of a polygon where the distance, given at each corner, is not below 0."""
    kept: list[Point] = []
    for at, here in enumerate(points):
        before, one, two = points[at - 1], distances[at - 1], distances[at]
        if (one < 0) != (two < 0):
            way = one / (one - two)
            kept.append((before[0] + (here[0] - before[0]) * way, before[1] + (here[1] - before[1]) * way))
        if two >= 0:
            kept.append(here)
    return kept
