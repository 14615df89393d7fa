"""The paint of boxes: backgrounds, borders, radii, shadows, cut as their ancestors cut them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from warren.render.scene import css
from warren.render.scene.clip import (
    Clip,
    Radii,
    clips_of,
    cut_round,
    cut_to,
    is_ellipse,
    is_inside,
    outline,
    polygon_of,
    radii_of,
    rounded_by,
)
from warren.render.scene.gradients import gradient, layers, part_of
from warren.render.scene.scene import Box, Colour, Fill, Gradient, Picture, Shadow, Shape, Stroke
from warren.render.scene.snapshot import Node, Rect

if TYPE_CHECKING:
    from warren.render.scene.raw import RawSlide

SIDES = ("top", "right", "bottom", "left")
_HIDDEN_STYLES = {"none", "hidden", ""}
# Fainter paint is invisible, and programs would draw it anyway.
_FAINT = 0.004


@dataclass(frozen=True, slots=True)
class Request:
    """Ask for a picture: an element's `own` paint, its `cast` shadow, a `tree` without its text, `glyphs` of icons."""

    key: str
    backend: int
    pseudo: str
    rect: Rect
    kind: str = "own"
    scale: float = 1.0


@dataclass(slots=True)
class Canvas:
    """The inputs of painting, and the pictures that it still needs."""

    raw: RawSlide
    root: Node
    requests: dict[str, Request] = field(default_factory=dict)
    images: set[str] = field(default_factory=set)

    def picture(self, node: Node, rect: Rect, *, kind: str = "own", scale: float = 1.0) -> Picture | None:
        """Return the element's own paint as a picture, if it was taken; else it is asked for."""
        # WHY the parent: a stylesheet can name a pseudo-element only by the element that it is of.
        backend = node.parent.backend if node.pseudo and node.parent else node.backend
        key = f"{node.backend}:{kind}"
        bounds = Rect(0.0, 0.0, self.root.bounds.width, self.root.bounds.height).meet(rect)
        if bounds is None or bounds.width < 0.5 or bounds.height < 0.5:
            return None
        taken = self.raw.rasters.get(key)
        if taken is None:
            self.requests[key] = Request(key, backend, node.pseudo, bounds, kind, scale)
            return None
        box = Box(taken.x, taken.y, taken.width, taken.height)
        return Picture(box=box, data=taken.png, name=node.name)


def paint(canvas: Canvas, node: Node) -> list[Shape | Picture]:
    """Return the items of one node's own box, from the back to the front."""
    if node.text is not None or not node.is_visible or node.is_anonymous:
        return []
    if node.rect.width < 0.3 and node.rect.height < 0.3:
        return []
    if needs_picture(node) or (not node.is_inline and has_glow(node)):
        found = canvas.picture(node, paint_bounds(node))
        under = [] if node.is_inline or not _is_upright(node) else box_shapes(canvas, node, node.rect)
        # The picture is exact; the shape under it can be taken, filled and moved.
        return [*under, *([found] if found else [])]
    if node.is_inline:
        return _inline(canvas, node)
    made = box_shapes(canvas, node, node.rect)
    # WHY without its borders: dark and light dots side by side leave lines where a program shows them smaller.
    cast = canvas.picture(node, paint_bounds(node), kind="cast") if is_hollow(node) else None
    return [cast, *made] if cast else made


def box_shapes(canvas: Canvas, node: Node, rect: Rect) -> list[Shape | Picture]:
    """Return fills, borders and the shadow of one rectangle of a node."""
    clips = clips_of(node, canvas.root)
    strokes = strokes_of(node)
    fills = fills_of(node, rect)
    shade = shadow_of(node)
    radii = radii_of(node, rect)
    polygon = polygon_of(node.css("clip-path"), rect, node.zoom)
    rings = [] if is_hollow(node) or (fills and _is_solid(fills[0])) else _rings(node, rect, radii)
    if not fills and not any(strokes):
        return [*rings, *_outlined(node, rect, radii)]
    whole = Shape(box=node.box(rect), radii=radii, is_ellipse=is_ellipse(node), polygon=polygon, name=_name(node))
    made = [replace(whole, fill=fill) for fill in fills] or [whole]
    made[-1] = replace(made[-1], strokes=strokes)
    if fills and _is_solid(fills[0]):
        made[0] = replace(made[0], shadow=shade)
        made[:0] = _hard_shadows(node, rect, whole)
    cut = [shape for item in made for shape in clipped(item, node, rect, clips)]
    return [*rings, *cut, *_outlined(node, rect, radii)]


def is_hollow(node: Node) -> bool:
    """Whether it casts a shadow and has no fill: programs draw no shadow of nothing, so its picture is needed."""
    shade = shadow_of(node) if node.text is None and not node.is_inline else None
    return shade is not None and shade.colour.alpha > _FAINT and not fills_of(node, node.rect)


def _rings(node: Node, rect: Rect, radii: Radii) -> list[Shape]:
    """Return shadows that are lines around a box which is seen through."""
    made: list[Shape] = []
    for shade in css.shadows(node.css("box-shadow")):
        if shade.is_inner or shade.blur or shade.x or shade.y or shade.spread <= 0:
            continue
        line = Stroke(shade.spread * node.zoom, css.faded(shade.colour, node.opacity))
        made.append(_around(node, rect, radii, line, line.width))
    return made


def _around(node: Node, rect: Rect, radii: Radii, line: Stroke, out: float) -> Shape:
    grown = Rect(rect.x - out, rect.y - out, rect.width + 2 * out, rect.height + 2 * out)
    return Shape(box=node.box(grown), strokes=(line,) * 4, radii=_grown(radii, out))


def _grown(radii: Radii, out: float) -> Radii:
    a, b, c, d = (radius + out if radius else 0.0 for radius in radii)
    return a, b, c, d


def _hard_shadows(node: Node, rect: Rect, whole: Shape) -> list[Shape]:
    """Return copies of the box where it has shadows without blur: dots, rings and offset frames are made so."""
    made: list[Shape] = []
    for shade in reversed(css.shadows(node.css("box-shadow"))):
        if shade.is_inner or shade.blur > 0:
            continue
        out = shade.spread * node.zoom
        moved = Rect(
            rect.x + shade.x * node.zoom - out,
            rect.y + shade.y * node.zoom - out,
            max(0.0, rect.width + 2 * out),
            max(0.0, rect.height + 2 * out),
        )
        paint_ = css.faded(shade.colour, node.opacity)
        made.append(replace(whole, box=node.box(moved), fill=paint_, radii=_grown(whole.radii, out)))
    return made


def _is_solid(fill: Fill) -> bool:
    paints = [fill] if isinstance(fill, Colour) else [stop.colour for stop in fill.stops]
    return all(paint.alpha > 0.85 for paint in paints)


def _outlined(node: Node, rect: Rect, radii: Radii) -> list[Shape | Picture]:
    width = node.px("outline-width")
    paint_ = css.colour(node.css("outline-color"))
    if node.css("outline-style") in {*_HIDDEN_STYLES, "auto"} or width <= 0 or paint_ is None or not paint_.alpha:
        return []
    out = node.px("outline-offset") + width
    line = Stroke(width, css.faded(paint_, node.opacity), node.css("outline-style"))
    return [_around(node, rect, radii, line, out)]


def _name(node: Node) -> str:
    return (node.attributes.get("class", "").split() or [node.name])[0][:40]


def fills_of(node: Node, rect: Rect) -> list[Fill]:
    """Background colour and gradients, the back one first."""
    if "text" in node.css("background-clip"):
        return []
    found: list[Fill] = []
    colour = css.colour(node.css("background-color"))
    if colour is not None and colour.alpha * node.opacity > _FAINT:
        found.append(css.faded(colour, node.opacity))
    for layer in reversed(layers(node.css("background-image"))):
        one = gradient(layer, rect.width, rect.height)
        if one is not None and (one.angle is not None or not has_glow(node)):
            stops = tuple(replace(stop, colour=css.faded(stop.colour, node.opacity)) for stop in one.stops)
            if any(stop.colour.alpha > _FAINT for stop in stops):
                found.append(replace(one, stops=stops))
    found += [css.faded(shade.colour, node.opacity) for shade in _inlays(node, rect)]
    return flattened(found)


def _inlays(node: Node, rect: Rect) -> list[Shadow]:
    """Return inner shadows that cover their box: style sheets lay stripes over tables so."""
    reach = min(rect.width, rect.height) / 2
    return [
        shade
        for shade in reversed(css.shadows(node.css("box-shadow")))
        if shade.is_inner and not shade.blur and shade.spread * node.zoom >= max(reach, 1.0)
    ]


def flattened(fills: list[Fill]) -> list[Fill]:
    """Make one fill of a gradient and the colour under it, where it hides that or can be mixed with it."""
    made: list[Fill] = []
    for fill in fills:
        below = made[-1] if made else None
        if isinstance(fill, Gradient) and isinstance(below, Colour) and below.alpha >= 1:
            stops = tuple(replace(stop, colour=css.over(stop.colour, below)) for stop in fill.stops)
            made[-1] = replace(fill, stops=stops)
        elif isinstance(fill, Gradient) and all(stop.colour.alpha >= 1 for stop in fill.stops):
            made = [fill]
        elif isinstance(fill, Colour) and isinstance(below, Colour) and below.alpha >= 1:
            made[-1] = css.over(fill, below)
        else:
            made.append(fill)
    return made


def strokes_of(node: Node) -> tuple[Stroke | None, Stroke | None, Stroke | None, Stroke | None]:
    """Return the borders that are seen."""
    found: list[Stroke | None] = []
    for side in SIDES:
        width = node.px(f"border-{side}-width")
        style = node.css(f"border-{side}-style")
        colour = css.colour(node.css(f"border-{side}-color"))
        if width <= 0 or style in _HIDDEN_STYLES or colour is None or colour.alpha * node.opacity <= _FAINT:
            found.append(None)
        else:
            kind = style if style in {"dashed", "dotted", "double"} else "solid"
            found.append(Stroke(width, css.faded(colour, node.opacity), kind))
    return found[0], found[1], found[2], found[3]


def shadow_of(node: Node) -> Shadow | None:
    """Return the strongest of the box's shadows: PowerPoint has one."""
    found = [shade for shade in css.shadows(node.css("box-shadow")) if not shade.is_inner and shade.blur > 0]
    if not found:
        return None
    best = max(found, key=lambda shade: shade.colour.alpha * (shade.blur + abs(shade.x) + abs(shade.y) + shade.spread))
    zoom = node.zoom
    return replace(
        best,
        x=best.x * zoom,
        y=best.y * zoom,
        blur=best.blur * zoom,
        spread=best.spread * zoom,
        colour=css.faded(best.colour, node.opacity),
    )


def clipped(shape: Shape, node: Node, rect: Rect, clips: list[Clip]) -> list[Shape]:
    """Return the shape as its ancestors let it be seen."""
    for clip in clips:
        if clip.scrolls and rect.meet(clip.rect) is None:
            return []
        if is_inside(rect, clip.rect):
            if any(clip.radii) and not shape.polygon and not shape.is_ellipse:
                shape = replace(shape, radii=rounded_by(rect, shape.radii, clip))
            continue
        cut = rect.meet(clip.rect)
        if cut is None:
            return []
        shape = _cut(shape, node, rect, cut, clip)
        if not shape.polygon and any(clip.radii):
            shape = replace(shape, radii=rounded_by(cut, shape.radii, clip))
        rect = cut
    return [shape]


def _cut(shape: Shape, node: Node, rect: Rect, cut: Rect, clip: Clip) -> Shape:
    fill = shape.fill
    if isinstance(fill, Gradient):
        fill = part_of(fill, (rect.width, rect.height), (cut.x - rect.x, cut.y - rect.y, cut.width, cut.height))
    is_round = any(shape.radii) or shape.is_ellipse
    polygon: tuple[tuple[float, float], ...] = ()
    if is_round or shape.polygon:
        if shape.polygon:
            points = [(rect.x + x * rect.width, rect.y + y * rect.height) for x, y in shape.polygon]
        else:
            points = outline(rect, shape.radii, ellipse=shape.is_ellipse)
        kept = cut_round(points, clip) if any(clip.radii) else cut_to(points, cut)
        polygon = tuple(((x - cut.x) / cut.width, (y - cut.y) / cut.height) for x, y in kept)
    top, right, bottom, left = shape.strokes
    strokes = (
        top if cut.y <= rect.y + 0.5 else None,
        right if cut.right >= rect.right - 0.5 else None,
        bottom if cut.bottom >= rect.bottom - 0.5 else None,
        left if cut.x <= rect.x + 0.5 else None,
    )
    return replace(
        shape,
        box=node.box(cut),
        fill=fill,
        polygon=polygon,
        radii=(0.0, 0.0, 0.0, 0.0),
        is_ellipse=False,
        strokes=strokes,
        shadow=None,
    )


def _inline(canvas: Canvas, node: Node) -> list[Shape | Picture]:
    """Paint an inline box once on each of its lines."""
    if not fills_of(node, node.rect) and not any(strokes_of(node)):
        return []
    rows: list[Rect] = []
    stack = list(node.children)
    while stack:
        child = stack.pop(0)
        stack[:0] = child.children
        for line in child.lines:
            if not line.text.strip():
                continue
            if rows and abs(rows[-1].y - line.rect.y) < line.rect.height / 2:
                rows[-1] = rows[-1].union(line.rect)
            else:
                rows.append(line.rect)
    if len(rows) < 2:
        return box_shapes(canvas, node, node.rect)
    up, down = node.px("padding-top"), node.px("padding-bottom")
    made: list[Shape | Picture] = []
    for at, row in enumerate(rows):
        before = node.px("padding-left") if at == 0 else 0.0
        after = node.px("padding-right") if at == len(rows) - 1 else 0.0
        grown = Rect(row.x - before, row.y - up, row.width + before + after, row.height + up + down)
        made += box_shapes(canvas, node, grown)
    return made


def needs_picture(node: Node) -> bool:
    """Return whether a box's own paint is nothing that PowerPoint has."""
    if "text" not in node.css("background-clip") and _is_foreign(node):
        return True
    if not has_paint(node):
        return False
    if "blur" in node.css("filter") or node.css("mask-image") not in {"none", ""}:
        return True
    path = node.css("clip-path")
    if path not in {"none", ""} and not polygon_of(path, node.rect, node.zoom):
        return True
    return _is_arrow(node) or node.css("border-image-source") not in {"none", ""}


def _is_upright(node: Node) -> bool:
    """Return whether the shape of a box stays under the picture of it."""
    bent = (node.css("filter"), node.css("mask-image"), node.css("clip-path"), node.css("border-image-source"))
    return all(value in {"none", ""} for value in bent) and not _is_arrow(node)


def _is_foreign(node: Node) -> bool:
    """Return whether its background has pictures, repeats, or goes round in a circle."""
    found = layers(node.css("background-image"))
    size = (max(1.0, node.rect.width), max(1.0, node.rect.height))
    return any(gradient(layer, *size) is None for layer in found) or (bool(found) and not _is_whole(node))


def _is_arrow(node: Node) -> bool:
    """Return whether its borders are the drawing: a triangle, or a spinner."""
    widest = max(node.px(f"border-{side}-width") for side in SIDES)
    colours = {node.css(f"border-{side}-color") for side in SIDES}
    return len(colours) > 1 and widest > 3 and widest >= min(node.rect.width, node.rect.height) / 2


def has_glow(node: Node) -> bool:
    """Whether there is a radial gradient that programs draw otherwise: PowerPoint's are circles about the middle."""
    if "text" in node.css("background-clip"):
        return False
    for layer in layers(node.css("background-image")):
        one = gradient(layer, node.rect.width, node.rect.height)
        if one is not None and one.angle is None:
            across, down = one.rx * node.rect.width, one.ry * node.rect.height
            is_plain = max(across, down) < 1.2 * min(across, down) and all(s.colour.alpha >= 1 for s in one.stops)
            if not is_plain or abs(one.cx - 0.5) > 0.1 or abs(one.cy - 0.5) > 0.1:
                return True
    return False


def _is_whole(node: Node) -> bool:
    """Whether the background covers its box once."""
    sizes = node.css("background-size")
    return all(size in {"auto", "cover", "100%", "100% 100%", "auto auto", ""} for size in sizes.split(", "))


def has_paint(node: Node) -> bool:
    """Whether the box itself paints anything."""
    colour = css.colour(node.css("background-color"))
    if colour and colour.alpha > _FAINT:
        return True
    if layers(node.css("background-image")) and "text" not in node.css("background-clip"):
        return True
    return any(strokes_of(node)) or bool(css.shadows(node.css("box-shadow")))


def paint_bounds(node: Node) -> Rect:
    """Where the paint of a box may reach: with shadows, outline and blur."""
    reach = 0.0
    for shade in css.shadows(node.css("box-shadow")):
        if not shade.is_inner:
            reach = max(reach, (shade.blur + shade.spread + max(abs(shade.x), abs(shade.y))) * node.zoom)
    blur = node.css("filter")
    if "blur(" in blur:
        reach = max(reach, css.number(blur[blur.index("blur(") :]) * 3 * node.zoom)
    reach = min(reach, 600.0)
    bounds = node.bounds
    return Rect(bounds.x - reach, bounds.y - reach, bounds.width + 2 * reach, bounds.height + 2 * reach)
