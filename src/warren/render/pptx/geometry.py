"""Where a shape is and what outline it has."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from warren.render.pptx.xml import NAMESPACES, Scale, clamped, element, finite

if TYPE_CHECKING:
    from warren.render.scene.scene import Box

Radii = tuple[float, float, float, float]
Point = tuple[float, float]
_CIRCLE = 0.5522847498
"""Where the handles of a Bézier curve must be so that four of them are a circle."""
_SAME = 0.26


def moved(box: Box, left: float, top: float, right: float, bottom: float) -> Box:
    """`box` with its sides moved outwards by so much, in its own turned frame."""
    wide, high = max(box.width + left + right, 0.0), max(box.height + top + bottom, 0.0)
    turn = math.radians(finite(box.rotation))
    across, down = (right - left) / 2, (bottom - top) / 2
    middle_x = box.x + box.width / 2 + across * math.cos(turn) - down * math.sin(turn)
    middle_y = box.y + box.height / 2 + across * math.sin(turn) + down * math.cos(turn)
    return replace(box, x=middle_x - wide / 2, y=middle_y - high / 2, width=wide, height=high)


def frame(box: Box, scale: Scale, tag: str = "a:xfrm") -> Any:
    """`a:xfrm`: place, size, turn and flips."""
    turn = round(finite(box.rotation) % 360 * 60_000) % 21_600_000
    attributes = {"rot": turn or None, "flipH": 1 if box.flip_x else None, "flipV": 1 if box.flip_y else None}
    return element(
        tag,
        attributes,
        element("a:off", {"x": scale.place(box.x), "y": scale.place(box.y)}),
        element("a:ext", {"cx": scale.length(box.width), "cy": scale.length(box.height)}),
    )


def group(properties: Any, shapes: list[Any]) -> Any:
    """`p:grpSp` around shapes that keep their places."""
    places = [found for shape in shapes if (found := _place(shape)) is not None]
    left, top = (min((place[at] for place in places), default=0) for at in (0, 1))
    right, bottom = (max((place[at] + place[at + 2] for place in places), default=0) for at in (0, 1))
    off, ext = {"x": left, "y": top}, {"cx": right - left, "cy": bottom - top}
    whole = [element("a:off", off), element("a:ext", ext), element("a:chOff", off), element("a:chExt", ext)]
    head = element("p:nvGrpSpPr", None, properties, element("p:cNvGrpSpPr"), element("p:nvPr"))
    return element("p:grpSp", None, head, element("p:grpSpPr", None, element("a:xfrm", None, *whole)), *shapes)


def _place(shape: Any) -> tuple[int, int, int, int] | None:
    off, ext = shape.find(".//a:off", NAMESPACES), shape.find(".//a:ext[@cx]", NAMESPACES)
    if off is None or ext is None:
        return None
    return int(off.get("x")), int(off.get("y")), int(ext.get("cx")), int(ext.get("cy"))


def preset(name: str, **adjustments: int) -> Any:
    """`a:prstGeom`."""
    guides = [element("a:gd", {"name": key, "fmla": f"val {value}"}) for key, value in adjustments.items()]
    return element("a:prstGeom", {"prst": name}, element("a:avLst", None, *guides))


def rounded(box: Box, radii: Radii, scale: Scale) -> Any:
    """Return a rectangle with these corners: PowerPoint's own shapes where one fits, so that their handles work."""
    shorter = max(min(finite(box.width), finite(box.height)), 0.001)
    top_left, top_right, bottom_right, bottom_left = fitted = _fitted(box, radii)
    if max(fitted) <= _SAME:
        return preset("rect")
    if max(fitted) - min(fitted) <= _SAME:
        share = clamped(top_left / shorter, 0, 0.5)
        if share > 0.499 and abs(box.width - box.height) <= _SAME:
            return preset("ellipse")
        return preset("roundRect", adj=round(share * 100_000))
    if abs(top_left - top_right) <= _SAME and abs(bottom_left - bottom_right) <= _SAME:
        shares = [round(clamped(radius / shorter, 0, 0.5) * 100_000) for radius in (top_left, bottom_left)]
        return preset("round2SameRect", adj1=shares[0], adj2=shares[1])
    return outline(box, rounded_steps(box.width, box.height, fitted), scale)


def _fitted(box: Box, radii: Radii) -> Radii:
    """Radii shrunk as CSS does where two of them do not fit along a side."""
    wide, high = max(finite(box.width), 0.0), max(finite(box.height), 0.0)
    first, second, third, fourth = (max(finite(radius), 0.0) for radius in radii)
    room = 1.0
    for side, total in ((wide, first + second), (wide, third + fourth), (high, second + third), (high, first + fourth)):
        if total > side:
            room = min(room, side / total)
    return first * room, second * room, third * room, fourth * room


Step = tuple[str, tuple[Point, ...]]


def rounded_steps(wide: float, high: float, radii: Radii) -> list[Step]:
    """Return the outline of a rectangle with four corners of its own, clockwise from the top left."""
    a, b, c, d = radii
    k = 1 - _CIRCLE
    return [
        ("moveTo", ((a, 0),)),
        ("lnTo", ((wide - b, 0),)),
        ("cubicBezTo", ((wide - b * k, 0), (wide, b * k), (wide, b))),
        ("lnTo", ((wide, high - c),)),
        ("cubicBezTo", ((wide, high - c * k), (wide - c * k, high), (wide - c, high))),
        ("lnTo", ((d, high),)),
        ("cubicBezTo", ((d * k, high), (0, high - d * k), (0, high - d))),
        ("lnTo", ((0, a),)),
        ("cubicBezTo", ((0, a * k), (a * k, 0), (a, 0))),
    ]


def polygon(box: Box, corners: tuple[Point, ...], scale: Scale) -> Any:
    """Return the outline of a clip-path; corners are parts of the box."""
    places = [(clamped(x, -4, 5) * box.width, clamped(y, -4, 5) * box.height) for x, y in corners]
    steps: list[Step] = [("moveTo" if index == 0 else "lnTo", (place,)) for index, place in enumerate(places)]
    return outline(box, steps, scale)


def outline(box: Box, steps: list[Step], scale: Scale) -> Any:
    """`a:custGeom` of one closed path."""
    drawn = [
        element(f"a:{verb}", None, *(element("a:pt", {"x": scale.place(x), "y": scale.place(y)}) for x, y in points))
        for verb, points in steps
    ]
    path = element("a:path", {"w": scale.length(box.width), "h": scale.length(box.height)}, *drawn, element("a:close"))
    return element(
        "a:custGeom",
        None,
        element("a:avLst"),
        element("a:gdLst"),
        element("a:ahLst"),
        element("a:cxnLst"),
        element("a:rect", {"l": "0", "t": "0", "r": "r", "b": "b"}),
        element("a:pathLst", None, path),
    )
