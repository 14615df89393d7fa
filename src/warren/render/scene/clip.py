"""Clipping by ancestors: overflow, and outlines cut to a rectangle."""

from __future__ import annotations

import math
from dataclasses import dataclass

from warren.render.scene import css
from warren.render.scene.paths import Point, cut
from warren.render.scene.snapshot import Node, Rect

Radii = tuple[float, float, float, float]
_CORNERS = ("top-left", "top-right", "bottom-right", "bottom-left")
_STEPS = 12
_TOLERANCE = 0.75


@dataclass(frozen=True, slots=True)
class Clip:
    """A rectangle with round corners, which clips its content; content that is scrolled away still exists."""

    rect: Rect
    radii: Radii
    scrolls: bool


def clips_of(node: Node, root: Node, *, is_text: bool = False) -> list[Clip]:
    """Return the clips of a node's ancestors inside the slide, and its own for text; not those turned otherwise."""
    own = _clip(node) if is_text and node is not root else None
    found: list[Clip] = [own] if own else []
    seeks_positioned = node.css("position") == "absolute"
    if node.css("position") == "fixed":
        return found
    owner = node.parent
    while owner is not None and owner is not root:
        is_block = owner.css("position") not in {"static", ""} or owner.css("transform") not in {"none", ""}
        if not seeks_positioned or is_block:
            clip = _clip(owner)
            if clip and abs(owner.turn - node.turn) < 0.1:
                found.append(clip)
            seeks_positioned = owner.css("position") == "absolute"
            if owner.css("position") == "fixed":
                break
        owner = owner.parent
    return found


def _clip(node: Node) -> Clip | None:
    kinds = {node.css("overflow-x"), node.css("overflow-y")} - {"", "visible"}
    if not kinds or node.is_inline:
        return None
    top, right, bottom, left = (node.px(f"border-{side}-width") for side in ("top", "right", "bottom", "left"))
    rect = node.rect
    inner = Rect(rect.x + left, rect.y + top, max(0.0, rect.width - left - right), max(0.0, rect.height - top - bottom))
    edge = max(top, right, bottom, left)
    radii = tuple(max(0.0, radius - edge) for radius in radii_of(node))
    return Clip(inner, (radii[0], radii[1], radii[2], radii[3]), bool(kinds & {"auto", "scroll"}))


def radii_of(node: Node, rect: Rect | None = None) -> Radii:
    """Return the radii of a box's corners in pixels, made smaller together where they do not fit, as CSS does."""
    box = rect or node.rect
    found: list[float] = []
    for corner in _CORNERS:
        tokens = node.css(f"border-{corner}-radius").split() or ["0"]
        across = _length(tokens[0], box.width, node.zoom)
        down = _length(tokens[-1], box.height if tokens[-1].endswith("%") else box.width, node.zoom)
        found.append(max(0.0, min((across + down) / 2, 1e5)))
    sums = (
        (found[0] + found[1], box.width),
        (found[3] + found[2], box.width),
        (found[0] + found[3], box.height),
        (found[1] + found[2], box.height),
    )
    shrink = min([1.0, *(side / total for total, side in sums if total > side)])
    return found[0] * shrink, found[1] * shrink, found[2] * shrink, found[3] * shrink


def is_ellipse(node: Node) -> bool:
    """Whether all four corners meet: an ellipse that is not a circle."""
    if abs(node.rect.width - node.rect.height) < 1:
        return False
    return all(
        token.endswith("%") and css.number(token) >= 50
        for corner in _CORNERS
        for token in (node.css(f"border-{corner}-radius").split() or ["0"])
    )


def _length(token: str, whole: float, zoom: float) -> float:
    value = css.number(token)
    return value / 100 * whole if token.endswith("%") else value * zoom


def is_inside(inner: Rect, outer: Rect) -> bool:
    """Whether nothing of it would be cut off."""
    return (
        inner.x >= outer.x - _TOLERANCE
        and inner.y >= outer.y - _TOLERANCE
        and inner.right <= outer.right + _TOLERANCE
        and inner.bottom <= outer.bottom + _TOLERANCE
    )


def rounded_by(rect: Rect, radii: Radii, clip: Clip) -> Radii:
    """Radii of a box that lies in the corners of a clip with round corners."""
    box = clip.rect
    near = (
        (rect.x - box.x, rect.y - box.y),
        (box.right - rect.right, rect.y - box.y),
        (box.right - rect.right, box.bottom - rect.bottom),
        (rect.x - box.x, box.bottom - rect.bottom),
    )
    made = [
        max(own, limit) if limit > 0 and abs(gap[0]) < 1.5 and abs(gap[1]) < 1.5 else own
        for own, limit, gap in zip(radii, clip.radii, near, strict=True)
    ]
    half = min(rect.width, rect.height)
    return min(made[0], half), min(made[1], half), min(made[2], half), min(made[3], half)


def outline(rect: Rect, radii: Radii, *, ellipse: bool = False) -> list[Point]:
    """Return the corners of a box with round corners, as many as look round."""
    if ellipse:
        across, down = rect.width / 2, rect.height / 2
        turns = [math.tau * step / (_STEPS * 4) for step in range(_STEPS * 4)]
        return [(rect.x + across * (1 + math.cos(t)), rect.y + down * (1 + math.sin(t))) for t in turns]
    centres = (
        (rect.x + radii[0], rect.y + radii[0], radii[0], math.pi),
        (rect.right - radii[1], rect.y + radii[1], radii[1], 1.5 * math.pi),
        (rect.right - radii[2], rect.bottom - radii[2], radii[2], 0.0),
        (rect.x + radii[3], rect.bottom - radii[3], radii[3], 0.5 * math.pi),
    )
    points: list[Point] = []
    for x, y, radius, start in centres:
        steps = _STEPS if radius > 0 else 0
        for step in range(steps + 1):
            way = start + (math.pi / 2 * step / steps if steps else 0.0)
            points.append((x + radius * math.cos(way), y + radius * math.sin(way)))
    return points


def cut_to(points: list[Point], rect: Rect) -> list[Point]:
    """Return a polygon cut to a rectangle, one side after the other."""
    for axis, limit, sign in ((0, rect.x, 1), (0, rect.right, -1), (1, rect.y, 1), (1, rect.bottom, -1)):
        points = cut(points, [(point[axis] - limit) * sign for point in points])
    return points


def cut_round(points: list[Point], clip: Clip) -> list[Point]:
    """Return a polygon cut to a clip with round corners."""
    edges = outline(clip.rect, clip.radii)
    for at, end in enumerate(edges):
        left, top = edges[at - 1]
        across, down = end[0] - left, end[1] - top
        if abs(across) + abs(down) > 1e-9:
            points = cut(points, [across * (y - top) - down * (x - left) for x, y in points])
    return points


def polygon_of(text: str, rect: Rect, zoom: float) -> tuple[Point, ...]:
    """Return a clip-path polygon as parts of the box; empty where it is none."""
    if not text.startswith("polygon(") or rect.width <= 0 or rect.height <= 0:
        return ()
    points: list[Point] = []
    for pair in css.split(text[len("polygon(") : -1])[:200]:
        tokens = css.split(pair, " ")
        if len(tokens) != 2 or tokens[0] in {"nonzero", "evenodd"}:
            continue
        if any("calc" in token for token in tokens):
            return ()
        x, y = _length(tokens[0], rect.width, zoom), _length(tokens[1], rect.height, zoom)
        points.append((x / rect.width, y / rect.height))
    return tuple(points) if len(points) >= 3 else ()
