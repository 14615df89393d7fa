"""CSS gradients as the scene's: linear and radial ones; PowerPoint has none that repeat or go round in a circle."""

from __future__ import annotations

import math
import re

from warren.render.scene import css
from warren.render.scene.scene import Gradient

_SIDES = {"to top": 0.0, "to right": 90.0, "to bottom": 180.0, "to left": 270.0}


def layers(image: str) -> list[str]:
    """Return the layers of a computed background-image, the front one first."""
    return [] if not image or image == "none" else css.split(image)[:16]


def gradient(text: str, width: float, height: float) -> Gradient | None:
    """One layer as a gradient over a box of that size; None where PowerPoint has no such thing."""
    found = re.match(r"^(linear|radial)-gradient\((.*)\)$", text.strip(), re.DOTALL)
    if not found or width <= 0 or height <= 0:
        return None
    parts = css.split(found.group(2))
    if not parts:
        return None
    return _linear(parts, width, height) if found.group(1) == "linear" else _radial(parts, width, height)


def _linear(parts: list[str], width: float, height: float) -> Gradient | None:
    angle, rest = 180.0, parts
    if parts[0].startswith("to ") or re.match(r"^-?[\d.]+(?:e-?\d+)?(deg|rad|turn|grad)$", parts[0]):
        angle, rest = _direction(parts[0], width, height), parts[1:]
    elif parts[0].startswith("in "):
        rest = parts[1:]
    way = math.radians(angle)
    length = abs(width * math.sin(way)) + abs(height * math.cos(way))
    found = css.stops(rest, length)
    return Gradient(css.cut(found), angle=angle % 360) if len(found) > 1 else None


def _direction(text: str, width: float, height: float) -> float:
    if not text.startswith("to "):
        return css.turn(text)
    if text in _SIDES:
        return _SIDES[text]
    # WHY: towards a corner, the line of equal colour goes through the other two corners.
    slope = math.degrees(math.atan2(height, width))
    if "top" in text:
        return slope if "right" in text else 360 - slope
    return 180 - slope if "right" in text else 180 + slope


def _radial(parts: list[str], width: float, height: float) -> Gradient | None:
    rest = parts
    shape, place, size = "ellipse", "50% 50%", "farthest-corner"
    if css.colour(css.split(parts[0], " ")[0]) is None:
        rest = parts[1:]
        before, _, after = parts[0].partition("at ")
        place = after.strip() or place
        tokens = before.split()
        shape = "circle" if "circle" in tokens or _is_one_length(tokens) else shape
        size = " ".join(token for token in tokens if token not in {"circle", "ellipse"}) or size
    tokens = [*place.split(), "50%"][:2]
    left = _along(tokens[0], width)
    top = _along(tokens[1], height)
    across, down = _radii(shape, size, (left, top), (width, height))
    found = css.stops(rest, across)
    if len(found) < 2 or across <= 0 or down <= 0:
        return None
    end = found[-1].at
    if end <= 0:
        return None
    return Gradient(
        css.cut(found, 0.0, end), cx=left / width, cy=top / height, rx=across * end / width, ry=down * end / height
    )


def _is_one_length(tokens: list[str]) -> bool:
    lengths = [token for token in tokens if token[0] in "0123456789."]
    return len(lengths) == 1


def _along(token: str, whole: float) -> float:
    names = {"left": 0.0, "top": 0.0, "center": 0.5, "right": 1.0, "bottom": 1.0}
    if token in names:
        return names[token] * whole
    return css.number(token) / 100 * whole if token.endswith("%") else css.number(token)


def _radii(shape: str, size: str, at: tuple[float, float], whole: tuple[float, float]) -> tuple[float, float]:
    lengths = [token for token in size.split() if token[0] in "0123456789."]
    if lengths:
        across = _along(lengths[0], whole[0])
        return across, _along(lengths[-1], whole[1]) if len(lengths) > 1 else across
    far = (max(at[0], whole[0] - at[0]), max(at[1], whole[1] - at[1]))
    near = (min(abs(at[0]), abs(whole[0] - at[0])), min(abs(at[1]), abs(whole[1] - at[1])))
    sides = near if size.startswith("closest") else far
    if shape == "circle":
        one = math.hypot(*sides) if size.endswith("corner") else (max if size.startswith("far") else min)(sides)
        return one, one
    if size.endswith("corner"):
        return sides[0] * math.sqrt(2), sides[1] * math.sqrt(2)
    return sides


def part_of(whole: Gradient, size: tuple[float, float], frame: tuple[float, float, float, float]) -> Gradient:
    """Return a gradient over a box of `size`, as seen in the part (x, y, width, height in pixels) of it."""
    (across, down), (x, y, width, height) = size, frame
    if whole.angle is None:
        return Gradient(
            whole.stops,
            cx=(whole.cx * across - x) / width,
            cy=(whole.cy * down - y) / height,
            rx=whole.rx * across / width,
            ry=whole.ry * down / height,
        )
    way = math.radians(whole.angle)
    ux, uy = math.sin(way), -math.cos(way)
    length = abs(across * ux) + abs(down * uy)
    inner = abs(width * ux) + abs(height * uy)
    if length <= 0 or inner <= 0:
        return whole
    middle = (x + width / 2 - across / 2) * ux + (y + height / 2 - down / 2) * uy
    start = 0.5 + (middle - inner / 2) / length
    end = 0.5 + (middle + inner / 2) / length
    return Gradient(css.cut(whole.stops, start, end), angle=whole.angle)
