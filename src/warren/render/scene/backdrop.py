"""Backdrops of slides and of text: backgrounds of ancestors, and colours behind translucent ones."""

from __future__ import annotations

import io
import math
from dataclasses import dataclass, field, replace
from functools import lru_cache

from PIL import Image, UnidentifiedImageError

from warren.render.scene import css
from warren.render.scene.gradients import layers
from warren.render.scene.paint import Canvas, Request, fills_of, flattened, has_glow, needs_picture, strokes_of
from warren.render.scene.scene import Box, Cell, Colour, Fill, Formula, Item, Paragraph, Picture, Shape, Table, TextBox
from warren.render.scene.snapshot import Node, Rect

_WHITE = Colour(255, 255, 255)
_KEY = "backdrop"
_MOST_PIXELS = 20_000_000


@dataclass(slots=True)
class Backdrop:
    """The slide's background, and what of it must be shapes."""

    fill: Fill | None = None
    picture: bytes | None = None
    items: list[Item] = field(default_factory=list)


def backdrop(canvas: Canvas) -> Backdrop:
    """Return the root's own background on those of its ancestors."""
    root = canvas.root
    owners = [root, *root.ancestors()]
    flat = _WHITE
    for owner in reversed(owners[1:]):
        if any(layers(owner.css("background-image"))) and not _is_hidden(owners[: owners.index(owner)]):
            return _taken(canvas, flat)
        colour = css.colour(owner.css("background-color"))
        flat = css.over(colour, flat) if colour else flat
    if needs_picture(root) or has_glow(root):
        return _taken(canvas, flat)
    made = flattened([flat, *fills_of(root, root.rect)])
    whole = Box(0.0, 0.0, root.bounds.width, root.bounds.height)
    items: list[Item] = [Shape(box=whole, fill=fill, name="background") for fill in made[1:]]
    strokes = strokes_of(root)
    if any(strokes):
        items.append(Shape(box=whole, strokes=strokes, name="border"))
    return Backdrop(made[0], None, items)


def _is_hidden(inner: list[Node]) -> bool:
    """Whether an opaque colour of a node further in hides everything behind it."""
    colours = [css.colour(node.css("background-color")) for node in inner]
    return any(colour is not None and colour.alpha >= 1 for colour in colours)


def _taken(canvas: Canvas, flat: Colour) -> Backdrop:
    root = canvas.root
    taken = canvas.raw.rasters.get(_KEY)
    if taken is None:
        whole = Rect(0.0, 0.0, root.bounds.width, root.bounds.height)
        canvas.requests[_KEY] = Request(_KEY, root.backend, "", whole)
        return Backdrop(flat)
    return Backdrop(flat, taken.png)


def flatten_text(items: list[tuple[Item, int]], behind: Backdrop, root: Node) -> list[Item]:
    """Give translucent text its blended, opaque colour: programs draw translucent letters badly.

    Each item has the number of the see-through group that it is part of, or -1.
    """
    view = View(behind, Box(0.0, 0.0, root.bounds.width, root.bounds.height))
    for item, group in items:
        if isinstance(item, TextBox):
            view.add(_flat_text(item, view, group), group)
        elif isinstance(item, Formula):
            parts = [_flat_text(one, view, group) if isinstance(one, TextBox) else one for one in item.items]
            view.add(replace(item, items=tuple(parts)), group)
        elif isinstance(item, Table):
            seen = view.colour(item.box, group)
            view.add(item if seen is None else _flat_table(item, seen), group)
        else:
            view.add(item, group)
    return [item for item, _ in view.items]


def _flat_text(item: TextBox, view: View, group: int) -> TextBox:
    seen = view.colour(item.box, group) if _is_faint(item.paragraphs) else None
    return item if seen is None else replace(item, paragraphs=tuple(_mixed(one, seen) for one in item.paragraphs))


def _flat_table(table: Table, seen: Colour) -> Table:
    rows = tuple(tuple(_flat_cell(cell, seen) if cell is not None else None for cell in row) for row in table.cells)
    return replace(table, cells=rows)


def _flat_cell(cell: Cell, seen: Colour) -> Cell:
    """WHY also its lines: LibreOffice draws see-through borders of cells as if they were not."""
    if isinstance(cell.fill, Colour):
        seen = css.over(cell.fill, seen)
    top, right, bottom, left = (
        replace(line, colour=css.over(line.colour, seen)) if line is not None else None for line in cell.strokes
    )
    return replace(
        cell, paragraphs=tuple(_mixed(one, seen) for one in cell.paragraphs), strokes=(top, right, bottom, left)
    )


def _is_faint(paragraphs: tuple[Paragraph, ...]) -> bool:
    return any(isinstance(run.fill, Colour) and run.fill.alpha < 1 for one in paragraphs for run in one.runs)


def _mixed(paragraph: Paragraph, seen: Colour) -> Paragraph:
    runs = tuple(
        replace(run, fill=css.over(run.fill, seen)) if isinstance(run.fill, Colour) and run.fill.alpha < 1 else run
        for run in paragraph.runs
    )
    return replace(paragraph, runs=runs)


class View:
    """The items painted so far, and the visible colour at a place."""

    def __init__(self, behind: Backdrop, whole: Box) -> None:
        self._behind = behind
        self._whole = whole
        self.items: list[tuple[Item, int]] = []

    def add(self, item: Item, group: int) -> None:
        """Paint something over all that is there."""
        self.items.append((item, group))

    def colour(self, box: Box, group: int) -> Colour | None:
        """Return the colour behind a box, without that of its own see-through group; None where it is not known."""
        x, y = box.x + box.width / 2, box.y + box.height / 2
        seen = Colour(0, 0, 0, 0.0)
        for item, owner in reversed(self.items):
            if isinstance(item, TextBox | Formula) or not _covers(item.box, x, y) or (group >= 0 and owner == group):
                continue
            if isinstance(item, Picture):
                found = _sampled(item.data, item.box, box)
                if found is None or any(item.crop):
                    return None
                seen = css.over(seen, css.faded(found, item.alpha))
            elif isinstance(item, Shape) and item.fill is not None:
                seen = css.over(seen, _colour_in(item.fill, item.box, x, y))
            if seen.alpha >= 0.999:
                return seen
        if self._behind.picture is not None:
            found = _sampled(self._behind.picture, self._whole, box)
            return css.over(seen, found) if found else None
        under = _colour_in(self._behind.fill, self._whole, x, y) if self._behind.fill is not None else _WHITE
        return css.over(seen, under)


@lru_cache(maxsize=16)
def _opened(data: bytes) -> Image.Image | None:
    try:
        with Image.open(io.BytesIO(data)) as image:
            if image.width * image.height > _MOST_PIXELS:
                return None
            return image.convert("RGBA")
    except (UnidentifiedImageError, OSError, ValueError, SyntaxError, Image.DecompressionBombError):
        return None


def _sampled(data: bytes, frame: Box, box: Box) -> Colour | None:
    """Return the colour of a picture under a box, all of it mixed."""
    image = _opened(data)
    if image is None or frame.rotation or frame.width <= 0 or frame.height <= 0:
        return None
    across, down = image.width / frame.width, image.height / frame.height
    left, top = max(0.0, (box.x - frame.x) * across), max(0.0, (box.y - frame.y) * down)
    right = min(float(image.width), left + max(1.0, box.width * across))
    bottom = min(float(image.height), top + max(1.0, box.height * down))
    if right - left < 1 or bottom - top < 1:
        return None
    area = image.crop((int(left), int(top), int(right), int(bottom)))
    pixel = area.resize((1, 1), Image.Resampling.BOX).getpixel((0, 0))
    if not isinstance(pixel, tuple) or len(pixel) != 4:
        return None
    red, green, blue, alpha = pixel
    return Colour(int(red), int(green), int(blue), float(alpha) / 255)


def _covers(box: Box, x: float, y: float) -> bool:
    return box.x <= x <= box.x + box.width and box.y <= y <= box.y + box.height


def _colour_in(fill: Fill, box: Box, x: float, y: float) -> Colour:
    if isinstance(fill, Colour):
        return fill
    if fill.angle is None:
        across = fill.rx * box.width or box.width * 0.7
        down = fill.ry * box.height or box.height * 0.7
        way = math.hypot((x - box.x - fill.cx * box.width) / across, (y - box.y - fill.cy * box.height) / down)
        return css.colour_at(fill, way)
    turn = math.radians(fill.angle)
    ux, uy = math.sin(turn), -math.cos(turn)
    length = abs(box.width * ux) + abs(box.height * uy) or 1.0
    way = 0.5 + ((x - box.x - box.width / 2) * ux + (y - box.y - box.height / 2) * uy) / length
    return css.colour_at(fill, way)
