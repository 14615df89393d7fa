"""Small snapshots written by hand, in the form in which the browser gives them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from warren.render.scene.build import build_slide
from warren.render.scene.raw import RawSlide
from warren.render.scene.snapshot import Page
from warren.render.scene.styles import STYLES

if TYPE_CHECKING:
    from warren.render.scene.scene import Slide

ROOT = 1
USUAL = {
    "display": "block",
    "position": "static",
    "visibility": "visible",
    "opacity": "1",
    "overflow-x": "visible",
    "overflow-y": "visible",
    "transform": "none",
    "background-color": "rgba(0, 0, 0, 0)",
    "background-image": "none",
    "background-clip": "border-box",
    "background-size": "auto",
    "font-family": "Test Sans",
    "font-size": "20px",
    "font-weight": "400",
    "font-style": "normal",
    "color": "rgb(10, 20, 30)",
    "-webkit-text-fill-color": "rgb(10, 20, 30)",
    "letter-spacing": "normal",
    "text-align": "start",
    "direction": "ltr",
    "writing-mode": "horizontal-tb",
    "white-space-collapse": "collapse",
    "text-decoration-line": "none",
    "float": "none",
    "filter": "none",
    "clip-path": "none",
    "mask-image": "none",
    "border-image-source": "none",
    "box-shadow": "none",
    "object-fit": "fill",
    "object-position": "50% 50%",
}
_INHERITED = ("color", "-webkit-text-fill-color", "font-size", "font-weight", "text-align", "direction", "visibility")

Bounds = tuple[float, float, float, float]


@dataclass
class Element:
    """One element, or a text when it has `words`: lines are (x, y, width, height, text)."""

    name: str
    bounds: Bounds
    children: list[Element] = field(default_factory=list)
    style: dict[str, str] = field(default_factory=dict)
    attributes: dict[str, str] = field(default_factory=dict)
    words: str | None = None
    lines: list[tuple[float, float, float, float, str]] = field(default_factory=list)
    pseudo: str = ""
    paint: int = 1
    source: str = ""
    is_shown: bool = True


def box(x: float, y: float, width: float, height: float, *children: Element, **style: str) -> Element:
    """A block; style names have underscores for hyphens."""
    return Element("div", (x, y, width, height), list(children), {k.replace("_", "-"): v for k, v in style.items()})


def span(x: float, y: float, width: float, height: float, *children: Element, **style: str) -> Element:
    """An inline element."""
    made = box(x, y, width, height, *children, **{"display": "inline", **style})
    made.name = "span"
    return made


def text(x: float, y: float, words: str, *, width: float = 0.0, height: float = 24.0) -> Element:
    """Words on one line, ten pixels a character."""
    wide = width or 10.0 * len(words)
    return Element("#text", (x, y, wide, height), words=words, lines=[(x, y, wide, height, words)])


def lines(words: str, *given: tuple[float, float, float, float, str]) -> Element:
    """Words on several lines."""
    return Element("#text", given[0][:4], words=words, lines=list(given))


class Recorder:
    """Writes elements down as the browser does: columns of numbers that name strings."""

    def __init__(self) -> None:
        self.strings: list[str] = []
        self.nodes: dict[str, Any] = {
            name: [] for name in ("parentIndex", "nodeName", "nodeValue", "backendNodeId", "attributes")
        } | {"pseudoType": {"index": [], "value": []}, "currentSourceURL": {"index": [], "value": []}}
        self.layout: dict[str, Any] = {name: [] for name in ("nodeIndex", "styles", "bounds", "text", "paintOrders")}
        self.boxes: dict[str, Any] = {name: [] for name in ("layoutIndex", "bounds", "start", "length")}

    def string(self, value: str) -> int:
        """The number of a string."""
        self.strings.append(value)
        return len(self.strings) - 1

    def add(self, element: Element, parent: int, inherited: dict[str, str]) -> None:
        """Write an element and all that is in it."""
        index = len(self.nodes["parentIndex"])
        style = {**USUAL, **inherited, **element.style}
        self.nodes["parentIndex"].append(parent)
        self.nodes["nodeName"].append(self.string(element.name.upper() if element.words is None else "#text"))
        self.nodes["nodeValue"].append(-1 if element.words is None else self.string(element.words))
        self.nodes["backendNodeId"].append(index + ROOT)
        self.nodes["attributes"].append([self.string(part) for pair in element.attributes.items() for part in pair])
        for name, value in (("pseudoType", element.pseudo), ("currentSourceURL", element.source)):
            if value:
                self.nodes[name]["index"].append(index)
                self.nodes[name]["value"].append(self.string(value))
        if element.is_shown:
            self.lay_out(element, index, style)
        for child in element.children:
            self.add(child, index, {name: style[name] for name in _INHERITED})

    def lay_out(self, element: Element, index: int, style: dict[str, str]) -> None:
        """Write down where an element is shown."""
        order = len(self.layout["nodeIndex"])
        self.layout["nodeIndex"].append(index)
        self.layout["styles"].append([self.string(style.get(name, "")) for name in STYLES])
        self.layout["bounds"].append(list(element.bounds))
        self.layout["text"].append(-1 if element.words is None else self.string(element.words))
        self.layout["paintOrders"].append(element.paint)
        at = 0
        for x, y, width, height, words in element.lines:
            assert element.words is not None
            start = element.words.find(words, at)
            start = element.words.index(words) if start < 0 else start
            at = start + len(words)
            self.boxes["layoutIndex"].append(order)
            self.boxes["bounds"].append([x, y, width, height])
            self.boxes["start"].append(start)
            self.boxes["length"].append(len(words))


def snapshot(root: Element) -> dict[str, Any]:
    """What the browser would say of a page that is this slide."""
    recorder = Recorder()
    recorder.add(root, -1, {})
    document = {"nodes": recorder.nodes, "layout": recorder.layout, "textBoxes": recorder.boxes}
    return {"documents": [document], "strings": recorder.strings}


def raw_of(*children: Element, **style: str) -> RawSlide:
    """A captured slide of 1000 by 500 pixels."""
    return RawSlide(0, ROOT, Page(snapshot(box(0, 0, 1000, 500, *children, **style))))


def built(*children: Element, **style: str) -> Slide:
    """The scene of a slide of 1000 by 500 pixels."""
    return build_slide(raw_of(*children, **style))
