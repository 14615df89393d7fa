"""Reads computed CSS values: numbers, colours, gradients, shadows, matrices. Whatever cannot be read is None."""

from __future__ import annotations

import itertools
import math
import re
from dataclasses import replace
from functools import lru_cache

from warren.render.scene.scene import Colour, Gradient, Shadow, Stop

# A value longer than this is an attack or a data address, never a colour.
_LONGEST = 20_000
_NUMBER = re.compile(r"-?(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?", re.IGNORECASE)
_FUNCTION = re.compile(r"^([a-z-]+)\((.*)\)$", re.DOTALL | re.IGNORECASE)
_LIMIT = 1e6


@lru_cache(maxsize=16384)
def number(text: str, default: float = 0.0) -> float:
    """Return the first number of the text, within sane limits."""
    found = _NUMBER.search(text[:200]) if text else None
    if not found:
        return default
    value = float(found.group())
    return value if -_LIMIT < value < _LIMIT else default


def split(text: str, separator: str = ",") -> list[str]:
    """Parts at the top level of brackets."""
    parts: list[str] = []
    depth = 0
    current: list[str] = []
    for character in text[:_LONGEST]:
        if character == "(":
            depth += 1
        elif character == ")":
            depth -= 1
        if depth == 0 and (character == separator or (separator == " " and character.isspace())):
            parts.append("".join(current).strip())
            current = []
        else:
            current.append(character)
    parts.append("".join(current).strip())
    return [part for part in parts if part]


def _byte(value: float) -> int:
    return max(0, min(255, round(value)))


def _part(token: str, whole: float) -> float:
    value = number(token)
    return value / 100 * whole if token.endswith("%") else value


@lru_cache(maxsize=4096)
def colour(text: str) -> Colour | None:
    """Return an rgb(), color(srgb …), oklab() or oklch() value, as computed styles write them."""
    if re.fullmatch(r"#[0-9a-fA-F]{6}", text):
        return Colour(int(text[1:3], 16), int(text[3:5], 16), int(text[5:7], 16))
    found = _FUNCTION.match(text.strip()) if len(text) < 200 else None
    if not found:
        return Colour(0, 0, 0, 0.0) if text == "transparent" else None
    name, inner = found.group(1).lower(), found.group(2)
    tokens = [token for token in re.split(r"[\s,/]+", inner.strip()) if token]
    if name in {"rgb", "rgba"} and len(tokens) >= 3:
        red, green, blue = (_part(token, 255) for token in tokens[:3])
    elif name == "color" and len(tokens) >= 4 and tokens[0] in {"srgb", "display-p3"}:
        red, green, blue = (_part(token, 1) * 255 for token in tokens[1:4])
        tokens = tokens[1:]
    elif name in {"oklab", "oklch"} and len(tokens) >= 3:
        red, green, blue = _oklab(name, tokens)
    else:
        return None
    alpha = _part(tokens[3], 1) if len(tokens) > 3 else 1.0
    return Colour(_byte(red), _byte(green), _byte(blue), max(0.0, min(1.0, alpha)))


def _oklab(name: str, tokens: list[str]) -> tuple[float, float, float]:
    light = _part(tokens[0], 1)
    first, second = _part(tokens[1], 0.4), _part(tokens[2], 0.4)
    if name == "oklch":
        turn = math.radians(number(tokens[2]))
        first, second = first * math.cos(turn), first * math.sin(turn)
    long = (light + 0.3963377774 * first + 0.2158037573 * second) ** 3
    medium = (light - 0.1055613458 * first - 0.0638541728 * second) ** 3
    short = (light - 0.0894841775 * first - 1.2914855480 * second) ** 3
    linear = (
        4.0767416621 * long - 3.3077115913 * medium + 0.2309699292 * short,
        -1.2684380046 * long + 2.6097574011 * medium - 0.3413193965 * short,
        -0.0041960863 * long - 0.7034186147 * medium + 1.7076147010 * short,
    )
    red, green, blue = (_gamma(max(0.0, min(1.0, value))) * 255 for value in linear)
    return red, green, blue


def _gamma(value: float) -> float:
    return 12.92 * value if value <= 0.0031308 else 1.055 * value ** (1 / 2.4) - 0.055


def faded(value: Colour, by: float) -> Colour:
    """Return the colour with its alpha times `by`."""
    return value if by >= 1 else replace(value, alpha=value.alpha * max(0.0, by))


def over(front: Colour, back: Colour) -> Colour:
    """Return `front` blended over `back`."""
    alpha = front.alpha + back.alpha * (1 - front.alpha)
    if alpha <= 0:
        return Colour(0, 0, 0, 0.0)
    mixed = (
        _byte((a * front.alpha + b * back.alpha * (1 - front.alpha)) / alpha)
        for a, b in ((front.red, back.red), (front.green, back.green), (front.blue, back.blue))
    )
    red, green, blue = mixed
    return Colour(red, green, blue, min(1.0, alpha))


def between(first: Colour, second: Colour, at: float) -> Colour:
    """Return the colour at 0 to 1 of the way, mixed as CSS does: with alpha premultiplied."""
    alpha = first.alpha + (second.alpha - first.alpha) * at
    if alpha <= 0:
        return replace(second, alpha=0.0)
    red, green, blue = (
        _byte((a * first.alpha * (1 - at) + b * second.alpha * at) / alpha)
        for a, b in ((first.red, second.red), (first.green, second.green), (first.blue, second.blue))
    )
    return Colour(red, green, blue, alpha)


def colour_at(fill: Gradient, at: float) -> Colour:
    """Return the colour of a gradient at 0 to 1 of its way."""
    stops = fill.stops
    if at <= stops[0].at:
        return stops[0].colour
    for one, two in itertools.pairwise(stops):
        if at <= two.at:
            way = (at - one.at) / (two.at - one.at) if two.at > one.at else 1.0
            return between(one.colour, two.colour, way)
    return stops[-1].colour


def shadows(text: str) -> list[Shadow]:
    """Return a computed box-shadow or text-shadow: the colour comes first."""
    found: list[Shadow] = []
    if not text or text == "none":
        return found
    for part in split(text)[:8]:
        tokens = split(part, " ")
        paint = next((c for c in (colour(token) for token in tokens) if c), None)
        sizes = [number(token) for token in tokens if token[:1] in "-.0123456789"]
        if paint is None or len(sizes) < 2 or paint.alpha <= 0:
            continue
        sizes += [0.0] * (4 - len(sizes))
        found.append(Shadow(sizes[0], sizes[1], max(0.0, sizes[2]), sizes[3], paint, is_inner="inset" in tokens))
    return found


def matrix(text: str) -> tuple[float, float, float, float] | None:
    """Return the linear part (a, b, c, d) of a computed transform; None when there is none or it cannot be read."""
    if not text or text == "none" or "(" not in text:
        return None
    numbers = [float(value) for value in _NUMBER.findall(text[text.index("(") : 2000])][:16]
    if any(not -_LIMIT < value < _LIMIT for value in numbers):
        return None
    if text.startswith("matrix3d(") and len(numbers) == 16:
        return numbers[0], numbers[1], numbers[4], numbers[5]
    if text.startswith("matrix(") and len(numbers) == 6:
        return numbers[0], numbers[1], numbers[2], numbers[3]
    return None


def turn(text: str) -> float:
    """Degrees of an angle or of the `rotate` property."""
    value = number(text)
    if "turn" in text:
        return value * 360
    if "grad" in text:
        return value * 0.9
    return math.degrees(value) if "rad" in text else value


def stops(parts: list[str], length: float) -> tuple[Stop, ...]:
    """Colour stops with their places filled in, as CSS says; `length` in pixels makes px stops into parts."""
    found: list[tuple[float | None, Colour]] = []
    for part in parts[:64]:
        tokens = split(part, " ")
        paint = colour(tokens[0]) if tokens else None
        if paint is None:
            return ()
        places = [_place(token, length) for token in tokens[1:3]]
        found += [(place, paint) for place in places] or [(None, paint)]
    return _spread(found) if found else ()


def _place(token: str, length: float) -> float:
    value = number(token)
    return value / 100 if token.endswith("%") else value / length if length > 0 else 0.0


def _spread(found: list[tuple[float | None, Colour]]) -> tuple[Stop, ...]:
    places: list[float | None] = [place for place, _ in found]
    places[0] = 0.0 if places[0] is None else places[0]
    places[-1] = 1.0 if places[-1] is None else places[-1]
    last = 0
    for index in range(1, len(places)):
        here = places[index]
        if here is None:
            continue
        start = places[last] or 0.0
        here = max(here, start)
        places[index] = here
        for gap in range(last + 1, index):
            places[gap] = start + (here - start) * (gap - last) / (index - last)
        last = index
    return tuple(Stop(place or 0.0, paint) for place, (_, paint) in zip(places, found, strict=True))


def cut(given: tuple[Stop, ...], start: float = 0.0, end: float = 1.0) -> tuple[Stop, ...]:
    """Return the stops seen between two places, which become 0 and 1."""
    whole = Gradient(given)
    inner = [Stop((s.at - start) / (end - start), s.colour) for s in given if start < s.at < end]
    return (Stop(0.0, colour_at(whole, start)), *inner, Stop(1.0, colour_at(whole, end)))
