"""A DOM snapshot as a tree of laid-out nodes around one slide: checked, bounded, in pixels from the slide's corner."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import reduce
from typing import TYPE_CHECKING, Any

from warren.render.scene import css
from warren.render.scene.scene import Box
from warren.render.scene.styles import STYLES

if TYPE_CHECKING:
    from collections.abc import Iterable

_PLACES = {name: place for place, name in enumerate(STYLES)}
MOST_NODES = 60_000
_FAR = 1e5
# Deeper than any hand-written page, and below Python's recursion limit.
_DEEPEST = 400


class SnapshotError(ValueError):
    """The snapshot is malformed: the slide becomes a picture."""


@dataclass(slots=True, frozen=True)
class Rect:
    """Where something is laid out, before its rotation about the slide's corner."""

    x: float
    y: float
    width: float
    height: float

    @property
    def right(self) -> float:
        """Its right side."""
        return self.x + self.width

    @property
    def bottom(self) -> float:
        """Its bottom side."""
        return self.y + self.height

    def union(self, other: Rect) -> Rect:
        """Return the bounding rectangle of both."""
        x, y = min(self.x, other.x), min(self.y, other.y)
        return Rect(x, y, max(self.right, other.right) - x, max(self.bottom, other.bottom) - y)

    def meet(self, other: Rect) -> Rect | None:
        """Return the intersection."""
        x, y = max(self.x, other.x), max(self.y, other.y)
        right, bottom = min(self.right, other.right), min(self.bottom, other.bottom)
        return Rect(x, y, right - x, bottom - y) if right > x and bottom > y else None


def around(rects: Iterable[Rect]) -> Rect:
    """Return the bounding rectangle of all."""
    return reduce(Rect.union, rects)


_NOWHERE = Rect(0.0, 0.0, 0.0, 0.0)


@dataclass(slots=True)
class Line:
    """One piece of text on one line."""

    rect: Rect
    text: str
    start: int


@dataclass(slots=True, eq=False)
class Node:
    """One laid-out box or text. `rect` is before rotation by `turn`; use `box()` for the scene."""

    order: int
    name: str
    backend: int
    attributes: dict[str, str]
    strings: list[str] = field(repr=False)
    styles: list[int] = field(repr=False)
    """Indices of the computed styles in the strings, read on demand: most are never used."""
    parent: Node | None = None
    children: list[Node] = field(default_factory=list)
    pseudo: str = ""
    text: str | None = None
    lines: list[Line] = field(default_factory=list)
    bounds: Rect = _NOWHERE
    rect: Rect = _NOWHERE
    paint: int = 0
    matrix: tuple[float, float, float, float] = (1.0, 0.0, 0.0, 1.0)
    turn: float = 0.0
    zoom: float = 1.0
    is_flipped: bool = False
    opacity: float = 1.0
    source: str = ""
    is_svg: bool = False
    is_anonymous: bool = False

    def css(self, name: str) -> str:
        """Return a computed style."""
        place = _PLACES[name]
        at = self.styles[place] if place < len(self.styles) else -1
        return self.strings[at] if isinstance(at, int) and 0 <= at < len(self.strings) else ""

    def px(self, name: str) -> float:
        """Return a computed length, as painted."""
        return css.number(self.css(name)) * self.zoom

    @property
    def is_inline(self) -> bool:
        """Whether it flows in lines of text."""
        return self.css("display") == "inline"

    @property
    def is_visible(self) -> bool:
        """Whether its own paint is seen."""
        return self.opacity > 0.004 and self.css("visibility") in {"visible", ""}

    def ancestors(self) -> list[Node]:
        """From the parent up."""
        found: list[Node] = []
        node = self.parent
        while node is not None:
            found.append(node)
            node = node.parent
        return found

    def box(self, rect: Rect | None = None) -> Box:
        """Return a rectangle of this node's plane as it is painted."""
        return turned(rect or self.rect, self.turn, is_flipped=self.is_flipped)


def turned(rect: Rect, turn: float, *, is_flipped: bool = False) -> Box:
    """Return the painted box of a rectangle that was measured before rotation about the origin."""
    if not turn:
        return Box(rect.x, rect.y, rect.width, rect.height, flip_x=is_flipped)
    x, y = rotate(rect.x + rect.width / 2, rect.y + rect.height / 2, turn)
    return Box(x - rect.width / 2, y - rect.height / 2, rect.width, rect.height, rotation=turn, flip_x=is_flipped)


def rotate(x: float, y: float, degrees: float) -> tuple[float, float]:
    """Return a point turned about the origin."""
    way = math.radians(degrees)
    return x * math.cos(way) - y * math.sin(way), x * math.sin(way) + y * math.cos(way)


def unturned(bounds: Rect, turn: float, height: float = 0.0) -> Rect:
    """Return the rectangle that, turned about the origin, has these bounds; `height` is for bounds that do not say."""
    if not turn:
        return bounds
    way = math.radians(turn)
    cos, sin = abs(math.cos(way)), abs(math.sin(way))
    even = cos * cos - sin * sin
    if abs(even) > 0.15:
        wide = (bounds.width * cos - bounds.height * sin) / even
        high = (bounds.height * cos - bounds.width * sin) / even
    else:
        high = height or min(bounds.width, bounds.height) / 4
        wide = (bounds.width - high * sin) / cos
    wide, high = max(0.0, wide), max(0.0, high)
    x, y = rotate(bounds.x + bounds.width / 2, bounds.y + bounds.height / 2, -turn)
    return Rect(x - wide / 2, y - high / 2, wide, high)


class Page:
    """The snapshot's document, read once; `slide(backend)` gives the tree of one slide."""

    def __init__(self, snapshot: Any) -> None:
        try:
            document = snapshot["documents"][0]
            self._strings: list[str] = [text if isinstance(text, str) else "" for text in snapshot["strings"]]
            self._nodes = document["nodes"]
            self._layout = document["layout"]
            self._parents: list[int] = self._nodes["parentIndex"]
            self._count = len(self._parents)
            self._pseudo = self._rare(self._nodes.get("pseudoType"))
            self._sources = self._rare(self._nodes.get("currentSourceURL"))
            self._boxes = self._text_boxes(document["textBoxes"])
            self._at = {number: index for index, number in enumerate(self._nodes["backendNodeId"])}
        except (KeyError, IndexError, TypeError, AttributeError, ValueError) as error:
            raise SnapshotError("the browser's snapshot cannot be read") from error
        if self._count > MOST_NODES:
            raise SnapshotError(f"the page has {self._count} nodes: that is too many to edit")

    def _string(self, index: Any) -> str:
        return self._strings[index] if isinstance(index, int) and 0 <= index < len(self._strings) else ""

    def _rare(self, column: Any) -> dict[int, str]:
        if not column:
            return {}
        return {index: self._string(value) for index, value in zip(column["index"], column["value"], strict=False)}

    def _text_boxes(self, boxes: Any) -> dict[int, list[tuple[Any, int, int]]]:
        found: dict[int, list[tuple[Any, int, int]]] = {}
        columns = zip(boxes["layoutIndex"], boxes["bounds"], boxes["start"], boxes["length"], strict=False)
        for index, bounds, start, length in columns:
            found.setdefault(index, []).append((bounds, int(start), int(length)))
        return found

    def slide(self, backend: int) -> tuple[Node, list[Node]]:
        """Return the slide's root (with its ancestors above it) and all its nodes in tree order."""
        try:
            return self._slide(backend)
        except SnapshotError:
            raise
        except (KeyError, IndexError, TypeError, AttributeError, ValueError) as error:
            raise SnapshotError("the browser's snapshot cannot be read") from error

    def corner(self, backend: int) -> tuple[float, float]:
        """Where a slide's element is in the document. Raises SnapshotError."""
        try:
            index = self._nodes["backendNodeId"].index(backend)
            bounds = _rect(self._layout["bounds"][self._layout["nodeIndex"].index(index)])
        except (ValueError, IndexError, TypeError) as error:
            raise SnapshotError("the slide is not laid out") from error
        return bounds.x, bounds.y

    def hidden_text(self, backend: int, name: str) -> str:
        """Return the text of the first element of that name in a node, shown or not; empty where there is none."""
        try:
            start = self._at[backend]
            names, values = self._nodes["nodeName"], self._nodes["nodeValue"]
            inside, owners, found = {start}, set[int](), list[str]()
            for index in range(start + 1, self._count):
                parent = self._parents[index]
                if parent not in inside:
                    break
                inside.add(index)
                if parent in owners:
                    owners.add(index)
                    found.append(self._string(values[index]))
                elif not owners and self._string(names[index]).lower() == name:
                    owners.add(index)
            return "".join(found)
        except (KeyError, ValueError, IndexError, TypeError):
            return ""

    def _near(self, backend: int) -> set[int]:
        """Return the indices of the nodes of a slide and its ancestors: of a deck, each slide is read by itself."""
        start = self._nodes["backendNodeId"].index(backend)
        inside = {start}
        for index in range(start + 1, self._count):
            if self._parents[index] in inside:
                inside.add(index)
        at = self._parents[start]
        for _ in range(_DEEPEST):
            if not 0 <= at < self._count:
                break
            inside.add(at)
            at = self._parents[at]
        return inside

    def _slide(self, backend: int) -> tuple[Node, list[Node]]:
        places: dict[int, Node] = {}
        root: Node | None = None
        nodes: list[Node] = []
        depths: dict[int, int] = {}
        near = self._near(backend)
        for order, index in enumerate(self._layout["nodeIndex"]):
            if index not in near:
                continue
            parent = self._parent_of(index, places)
            node = self._node(order, index)
            node.parent = parent
            if index in places:
                # Boxes that have no node of their own, as around the text of `::before`, come after the node's.
                node.parent = places[index]
                node.is_anonymous = node.text is None
            places[index] = node
            depth = depths.get(id(node.parent), 0) + 1
            depths[id(node)] = depth
            if depth > _DEEPEST:
                raise SnapshotError("the page is nested too deeply")
            if node.parent is not None:
                node.is_svg = node.parent.is_svg or node.name == "svg"
            if node.backend == backend and root is None:
                root = node
            if root is not None:
                nodes.append(node)
                if node is not root and node.parent is not None:
                    node.parent.children.append(node)
        if root is None:
            raise SnapshotError("the slide is not laid out")
        place(root, nodes)
        return root, nodes

    def _parent_of(self, index: int, places: dict[int, Node]) -> Node | None:
        at = self._parents[index]
        for _ in range(_DEEPEST):
            if at < 0 or at >= self._count:
                return None
            if at in places:
                return places[at]
            at = self._parents[at]
        return None

    def _node(self, order: int, index: int) -> Node:
        layout, nodes = self._layout, self._nodes
        flat = nodes["attributes"][index]
        attributes = {self._string(flat[at]): self._string(flat[at + 1]) for at in range(0, len(flat) - 1, 2)}
        words = layout["text"][order]
        text = self._string(words) if words >= 0 else None
        node = Node(
            order=order,
            name=self._string(nodes["nodeName"][index]).lower(),
            backend=int(nodes["backendNodeId"][index]),
            attributes=attributes,
            strings=self._strings,
            styles=layout["styles"][order],
            pseudo=self._pseudo.get(index, ""),
            text=text,
            bounds=_rect(layout["bounds"][order]),
            paint=int(layout["paintOrders"][order]),
            source=self._sources.get(index, ""),
        )
        if text is not None:
            node.lines = self._lines(order, text)
        return node

    def _lines(self, order: int, text: str) -> list[Line]:
        found: list[Line] = []
        units = text.encode("utf-16-le", "surrogatepass")
        for bounds, start, length in self._boxes.get(order, ()):
            piece = units[start * 2 : (start + length) * 2].decode("utf-16-le", "replace")
            found.append(Line(_rect(bounds), piece, start))
        # WHY: the browser lists the pieces of a line from left to right, also where it is read the other way.
        return sorted(found, key=lambda line: line.start)


def _rect(values: Any) -> Rect:
    numbers = [float(value) for value in values[:4]]
    if len(numbers) != 4 or not all(math.isfinite(value) for value in numbers):
        return _NOWHERE
    x, y, width, height = numbers
    if abs(x) > _FAR * 10 or abs(y) > _FAR * 10:
        return _NOWHERE
    return Rect(x, y, max(0.0, min(width, _FAR)), max(0.0, min(height, _FAR)))


def place(root: Node, nodes: list[Node]) -> None:
    """Move everything to the slide's corner, and add up transforms and opacity from the root down."""
    left, top = root.bounds.x, root.bounds.y
    for node in nodes:
        node.bounds = Rect(node.bounds.x - left, node.bounds.y - top, node.bounds.width, node.bounds.height)
        parent = node.parent if node is not root else None
        own = 1.0 if node.text is not None else max(0.0, min(1.0, css.number(node.css("opacity"), 1.0)))
        node.opacity = own * (parent.opacity if parent else 1.0)
        node.matrix = parent.matrix if parent else (1.0, 0.0, 0.0, 1.0)
        if node.text is None and parent is not None:
            node.matrix = _times(node.matrix, _transform(node))
        _decompose(node)
        node.rect = unturned(node.bounds, node.turn, node.px("font-size") * 1.2)
        for line in node.lines:
            moved = Rect(line.rect.x - left, line.rect.y - top, line.rect.width, line.rect.height)
            line.rect = unturned(moved, node.turn, node.px("font-size") * 1.2)


def _transform(node: Node) -> tuple[float, float, float, float]:
    found = (1.0, 0.0, 0.0, 1.0)
    rotation = node.css("rotate")
    if rotation and rotation != "none" and " " not in rotation:
        way = math.radians(css.turn(rotation))
        found = (math.cos(way), math.sin(way), -math.sin(way), math.cos(way))
    scale = node.css("scale")
    if scale and scale != "none":
        parts = scale.split()
        across = css.number(parts[0], 1.0)
        found = _times(found, (across, 0.0, 0.0, css.number(parts[1], 1.0) if len(parts) > 1 else across))
    own = css.matrix(node.css("transform"))
    return _times(found, own) if own else found


def _times(
    first: tuple[float, float, float, float], second: tuple[float, float, float, float]
) -> tuple[float, float, float, float]:
    a, b, c, d = first
    e, f, g, h = second
    return a * e + c * f, b * e + d * f, a * g + c * h, b * g + d * h


def _decompose(node: Node) -> None:
    a, b, c, d = node.matrix
    if abs(b) < 1e-6 and abs(c) < 1e-6 and a > 0 and d > 0:
        node.zoom = math.sqrt(a * d)
        return
    even = a * d - b * c
    node.zoom = math.sqrt(abs(even))
    node.is_flipped = even < 0
    degrees = math.degrees(math.atan2(b, a)) if even >= 0 else math.degrees(math.atan2(-b, -a))
    node.turn = 0.0 if abs(degrees) < 0.05 else round(degrees, 3)
