"""Charts described by a chart library, as native charts. The description comes from the page, so it is checked."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from warren.render.scene import css
from warren.render.scene.scene import Chart, Colour, Series

if TYPE_CHECKING:
    from warren.render.scene.raw import RawSlide
    from warren.render.scene.snapshot import Node

_KINDS = {
    "bar": "column",
    "line": "line",
    "pie": "pie",
    "doughnut": "doughnut",
    "scatter": "scatter",
    "radar": "radar",
    "polarArea": "pie",
}
_MOST_POINTS = 500
_MOST_SERIES = 24
_LONGEST = 120
_PALETTE = (
    Colour(54, 162, 235),
    Colour(255, 99, 132),
    Colour(255, 159, 64),
    Colour(255, 205, 86),
    Colour(75, 192, 192),
    Colour(153, 102, 255),
    Colour(201, 203, 207),
)


def chart(raw: RawSlide, node: Node, fallback: bytes) -> Chart | None:
    """Return the chart of a canvas or container, or None where its numbers are not known or make no sense."""
    said = raw.charts.get(node.backend)
    if not isinstance(said, dict):
        return None
    kind = _KINDS.get(str(said.get("type")))
    sets = said.get("series")
    if kind is None or not isinstance(sets, list) or not 0 < len(sets) <= _MOST_SERIES:
        return None
    if kind == "column" and said.get("horizontal") is True:
        kind = "bar"
    if kind == "line" and all(isinstance(one, dict) and one.get("filled") is True for one in sets):
        kind = "area"
    labels = said.get("labels")
    names = tuple(str(label)[:_LONGEST] for label in labels[:_MOST_POINTS]) if isinstance(labels, list) else ()
    series = tuple(
        made
        for at, one in enumerate(sets)
        if isinstance(one, dict) and (made := _series(kind, one, len(names), at)) is not None
    )
    if not series or (kind != "scatter" and not names):
        return None
    whole = Chart(box=node.box(), kind=kind, categories=names, series=series, fallback=fallback, name="chart")
    return replace(whole, **_looks(said, node.zoom))


def _looks(said: dict[str, Any], zoom: float) -> dict[str, Any]:
    """Return what a chart has besides its numbers."""
    legend = said.get("legend")
    return {
        "title": str(said.get("title") or "")[:_LONGEST],
        "title_size": _size(said.get("title_size")) * zoom,
        "title_is_left": said.get("title_left") is True,
        "is_stacked": said.get("stacked") is True,
        "legend": legend if legend in {"top", "right", "bottom", "left"} else "",
        "colour": css.colour(_rgb(said.get("colour"))) or Colour(102, 102, 102),
        "size": _size(said.get("size")) * zoom,
        "family": _family(said.get("family")),
        "grid": css.colour(_rgb(said.get("grid"))) if said.get("grid") is not None else Colour(217, 217, 217),
        **_axis(said),
        **_axis(said, "x_"),
        "has_ticks": said.get("ticks") is not False,
        "plot": _plot(said.get("plot")),
        "hole": min(max(_number(said.get("hole")) or 0.5, 0.1), 0.9),
        "has_labels": said.get("labels_shown") is True,
    }


def _family(value: Any) -> str:
    """Return the first family of a list that programs may know; what only browsers know is Arial."""
    first = _rgb(value).split(",")[0].strip().strip("\"'")[:_LONGEST]
    is_usual = not first or first.startswith(("-", "Helvetica", "system-ui", "ui-")) or first.endswith("serif")
    return "Arial" if is_usual else first


def _axis(said: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    low, high, step = (_number(said.get(prefix + name)) for name in ("low", "high", "step"))
    if low is None or high is None or high <= low:
        return {}
    is_even = step is not None and 2 <= (high - low) / step <= 50 if step else False
    return {f"{prefix}low": low, f"{prefix}high": high, f"{prefix}step": step if is_even else None}


def _plot(value: Any) -> tuple[float, float, float, float] | None:
    """Return where the values are drawn, if that is inside of the chart."""
    parts = [_number(one) for one in value] if isinstance(value, list) and len(value) == 4 else []
    left, top, width, height = parts if parts and None not in parts else (None,) * 4
    if left is None or top is None or width is None or height is None:
        return None
    is_inside = left >= -0.01 and top >= -0.01 and left + width <= 1.01 and top + height <= 1.01
    if not is_inside or min(width, height) < 0.05:
        return None
    left, top = max(left, 0.0), max(top, 0.0)
    return left, top, min(width, 1 - left), min(height, 1 - top)


def _rgb(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _size(value: Any) -> float:
    return float(value) if isinstance(value, int | float) and 4 <= value <= 200 else 12.0


def _number(value: Any) -> float | None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if is_number and math.isfinite(value) and abs(value) < 1e15 else None


def _series(kind: str, said: dict[str, Any], count: int, at: int) -> Series | None:
    values = said.get("values")
    if not isinstance(values, list) or not values:
        return None
    numbers = tuple(_number(value) for value in values[:_MOST_POINTS])
    if all(number is None for number in numbers):
        return None
    xs: tuple[float, ...] = ()
    if kind == "scatter":
        given = said.get("xs")
        places = [_number(x) for x in given[:_MOST_POINTS]] if isinstance(given, list) else []
        if len(places) != len(numbers) or any(place is None for place in places):
            return None
        xs = tuple(place for place in places if place is not None)
    else:
        numbers = (*numbers[:count], *([None] * max(0, count - len(numbers))))
    colours = said.get("colours")
    fills = tuple(
        css.colour(_rgb(one)) or _PALETTE[place % len(_PALETTE)]
        for place, one in enumerate(colours[:_MOST_POINTS] if isinstance(colours, list) else [])
    )
    fill = css.colour(_rgb(said.get("colour"))) or (fills[0] if fills else _PALETTE[at % len(_PALETTE)])
    line = css.colour(_rgb(said.get("edge"))) if kind in {"pie", "doughnut"} else None
    if kind == "area" or (kind == "radar" and said.get("filled") is True):
        line, shade = fill, css.colour(_rgb(said.get("area")))
        part = _number(said.get("opacity"))
        fill = shade or css.faded(fill, 0.7 if part is None else min(max(part, 0.0), 1.0))
    return Series(
        name=str(said.get("name") or f"{at + 1}")[:_LONGEST],
        values=numbers,
        xs=xs,
        fill=fill,
        fills=fills,
        line=line,
        is_smooth=said.get("smooth") is True and (kind == "line" or said.get("as") == "line"),
        is_line=kind == "column" and said.get("as") == "line",
        has_line=kind != "scatter" or said.get("lined") is True,
        marker=min(max(_number(said.get("marker")) or 0.0, 0.0), 72.0),
    )
