"""The computed styles that a snapshot carries, in the order it carries them."""

from __future__ import annotations

_SIDES = ("top", "right", "bottom", "left")

STYLES: tuple[str, ...] = (
    # The box, and how it is changed as a whole.
    *("display", "position", "float", "visibility", "opacity"),
    *("overflow-x", "overflow-y", "clip-path", "transform", "rotate", "scale", "filter", "mask-image"),
    # Its paint.
    *("background-color", "background-image", "background-clip", "background-size"),
    *("background-position-x", "background-position-y", "background-repeat"),
    *(f"border-{side}-{what}" for side in _SIDES for what in ("width", "style", "color")),
    *(f"border-{corner}-radius" for corner in ("top-left", "top-right", "bottom-right", "bottom-left")),
    *("border-image-source", "border-collapse", "box-shadow"),
    *("outline-width", "outline-style", "outline-color", "outline-offset"),
    # Where its content is.
    *(f"padding-{side}" for side in _SIDES),
    *("column-count", "column-width", "column-gap", "object-fit", "object-position"),
    # Text.
    *("color", "-webkit-text-fill-color", "-webkit-text-stroke-width", "-webkit-text-stroke-color"),
    *("font-family", "font-size", "font-weight", "font-style", "letter-spacing", "text-align"),
    *("text-decoration-line", "text-shadow", "vertical-align", "white-space-collapse"),
    *("direction", "writing-mode", "list-style-type"),
    # Drawings.
    *("fill", "fill-opacity", "text-anchor"),
)
