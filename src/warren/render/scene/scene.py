"""The model of a slide between browser and PowerPoint: plain values in CSS pixels from the slide's top left corner.

Built by `scene/` from a snapshot of the page, written by `pptx/`; both are pure and need no browser.
"""

from __future__ import annotations

from dataclasses import dataclass, field

RAISED = 0.62
"""PowerPoint shrinks raised text to two thirds and LibreOffice to 58 %; the size written is so much the larger."""


@dataclass(frozen=True, slots=True)
class Box:
    """A rectangle; `rotation` is in degrees, clockwise about its middle, after which `flip_*` hold."""

    x: float
    y: float
    width: float
    height: float
    rotation: float = 0.0
    flip_x: bool = False
    flip_y: bool = False


@dataclass(frozen=True, slots=True)
class Colour:
    """sRGB, 0 to 255, and how opaque, 0 to 1."""

    red: int
    green: int
    blue: int
    alpha: float = 1.0


@dataclass(frozen=True, slots=True)
class Stop:
    """One colour of a gradient, at 0 to 1 of the way."""

    at: float
    colour: Colour


@dataclass(frozen=True, slots=True)
class Gradient:
    """Linear (`angle` in CSS degrees: 0 is upwards, 90 to the right) or radial (from the middle, `cx`, `cy` 0 to 1).

    The last stop of a radial gradient is at `rx`, `ry`, as parts of the box's sides; 0 is the farthest corner.
    """

    stops: tuple[Stop, ...]
    angle: float | None = None
    cx: float = 0.5
    cy: float = 0.5
    rx: float = 0.0
    ry: float = 0.0


Fill = Colour | Gradient


@dataclass(frozen=True, slots=True)
class Stroke:
    """A line: `style` is solid, dashed, dotted or double."""

    width: float
    colour: Colour
    style: str = "solid"


@dataclass(frozen=True, slots=True)
class Shadow:
    """One box or text shadow."""

    x: float
    y: float
    blur: float
    spread: float
    colour: Colour
    is_inner: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """The paint of one box: background, borders, radii, shadow; no text."""

    box: Box
    fill: Fill | None = None
    strokes: tuple[Stroke | None, Stroke | None, Stroke | None, Stroke | None] = (None, None, None, None)
    """Top, right, bottom, left."""
    radii: tuple[float, float, float, float] = (0.0, 0.0, 0.0, 0.0)
    """Top left, top right, bottom right, bottom left; half of the shorter side is a circle or a pill."""
    is_ellipse: bool = False
    """Fills its box from side to side; instead of radii."""
    polygon: tuple[tuple[float, float], ...] = ()
    """Of a clip-path: corners, 0 to 1 of the box. Instead of radii."""
    shadow: Shadow | None = None
    name: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """An image: file content, cut to `crop` (left, top, right, bottom, each 0 to 1 of the picture)."""

    box: Box
    data: bytes = field(repr=False)
    mime: str = "image/png"
    svg: bytes | None = field(default=None, repr=False)
    """The drawing that `data` is a picture of, kept so that it stays sharp and editable."""
    crop: tuple[float, float, float, float] = (0.0, 0.0, 0.0, 0.0)
    radii: tuple[float, float, float, float] = (0.0, 0.0, 0.0, 0.0)
    alpha: float = 1.0
    shadow: Shadow | None = None
    alt: str = ""
    link: str = ""
    name: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """Text in one style. A newline in it breaks the line: those of the page, and those that must be kept."""

    text: str
    size: float
    """CSS pixels."""
    family: str = ""
    """As painted: the installed family's own name."""
    family_ea: str = ""
    """For East Asian characters, where another family paints them."""
    weight: int = 400
    italic: bool = False
    underline: bool = False
    strike: bool = False
    fill: Fill = Colour(0, 0, 0)
    outline: Stroke | None = None
    is_hollow: bool = False
    """Only its outline is painted."""
    highlight: Colour | None = None
    spacing: float = 0.0
    """Between characters, CSS pixels: what the page asks for and what locks the width."""
    baseline: float = 0.0
    """Raised (sup) or lowered (sub), as a part of its own size."""
    link: str = ""
    """http, https, mailto, or `#slide-3` for the third slide of this deck."""
    shadow: Shadow | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Paragraph:
    """Runs with one alignment and pitch."""

    runs: tuple[Run, ...]
    align: str = "left"
    """left, center, right or justify; physical."""
    is_rtl: bool = False
    pitch: float = 0.0
    """From one baseline to the next, CSS pixels; 0 for a single line."""
    first_baseline: float = 0.0
    """Of its first line, from the top of the text box or cell, CSS pixels; 0 where it is not known."""
    first_size: float = 0.0
    """The largest size that is written in its first line; 0 lets the writer take it from the runs."""
    lines: int = 1
    space_before: float = 0.0
    """Between the line boxes of the paragraph above and its own, each 1.2 x size, or its pitch, high."""
    bullet: str = ""
    """A character, or `1.`, `a.`, `i.` … for numbers that PowerPoint counts."""
    bullet_start: int = 1
    bullet_fill: Fill | None = None
    indent: float = 0.0
    """Of the text, when there is a bullet; the bullet hangs in it."""
    level: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TextBox:
    """One block of text: `box` is where its lines are painted, without padding."""

    box: Box
    paragraphs: tuple[Paragraph, ...]
    first_baseline: float
    """From the top of the box, CSS pixels: what the writer seats the text by."""
    lines: int = 1
    is_title: bool = False
    wraps: bool = True
    """False where the page keeps it on its lines whatever the width."""
    is_vertical: bool = False
    alpha: float = 1.0
    name: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One cell of a table."""

    paragraphs: tuple[Paragraph, ...] = ()
    fill: Fill | None = None
    strokes: tuple[Stroke | None, Stroke | None, Stroke | None, Stroke | None] = (None, None, None, None)
    padding: tuple[float, float, float, float] = (0.0, 0.0, 0.0, 0.0)
    anchor: str = "middle"
    """top, middle or bottom; the first paragraph's `first_baseline`, where not 0, says it exactly."""
    rows: int = 1
    columns: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A table; a place that another cell spans is None."""

    box: Box
    column_widths: tuple[float, ...]
    row_heights: tuple[float, ...]
    cells: tuple[tuple[Cell | None, ...], ...]
    name: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """One row of numbers of a chart; None is a gap."""

    name: str
    values: tuple[float | None, ...]
    xs: tuple[float, ...] = ()
    """Of a scatter chart."""
    fill: Colour | None = None
    fills: tuple[Colour, ...] = ()
    """Of each point, for pies."""
    line: Colour | None = None
    """Along the edge of an area, or between the parts of a pie."""
    is_smooth: bool = False
    is_line: bool = False
    """A line over the columns of the others."""
    has_line: bool = True
    """Whether the points of a scatter chart are joined."""
    marker: float = 0.0
    """How wide its points are drawn, CSS pixels; 0 lets the program choose."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """A chart whose numbers could be read: kind is bar, column, line, area, pie, doughnut, scatter or radar."""

    box: Box
    kind: str
    categories: tuple[str, ...]
    series: tuple[Series, ...]
    title: str = ""
    title_size: float = 0.0
    title_is_left: bool = False
    """Above the middle, if not at the left."""
    is_stacked: bool = False
    legend: str = ""
    """top, right, bottom, left, or empty for none."""
    colour: Colour = Colour(0, 0, 0)
    """Of its words."""
    size: float = 12.0
    family: str = ""
    grid: Colour | None = Colour(217, 217, 217)
    """Of the lines behind the values; None for none."""
    low: float | None = None
    high: float | None = None
    step: float | None = None
    """Where the axis of values begins and ends, and how far its marks are apart, where that is known."""
    x_low: float | None = None
    x_high: float | None = None
    x_step: float | None = None
    """The same of the other axis of a scatter chart."""
    has_ticks: bool = True
    """Whether there are numbers along the axis of values."""
    plot: tuple[float, float, float, float] | None = None
    """Where the values are drawn, without words: left, top, width, height, each 0 to 1 of the box."""
    hole: float = 0.5
    """Of a doughnut, as a part of its width."""
    has_labels: bool = False
    """Whether the parts of a pie have their names beside them."""
    fallback: bytes = field(default=b"", repr=False)
    """A picture of it, if it cannot be written."""
    name: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Formula:
    """A formula: letters and rules where they are painted, which are moved and read out as one."""

    items: tuple[Shape | Picture | TextBox, ...]
    source: str
    """What it was written as: TeX, or the words of its MathML."""
    box: Box


Item = Shape | Picture | TextBox | Table | Chart | Formula


@dataclass(frozen=True, slots=True, kw_only=True)
class Slide:
    """One slide: its items, from the back to the front."""

    width: float
    height: float
    items: tuple[Item, ...]
    background: Fill | None = None
    background_picture: bytes | None = field(default=None, repr=False)
    title: str = ""
    notes: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Deck:
    """All slides; the first one gives the size."""

    slides: tuple[Slide, ...]
    title: str = ""
    lang: str = "en-US"
