"""Scenes written by hand: every kind of thing a slide can have."""

from __future__ import annotations

import io
from typing import Any

from PIL import Image

from warren.render.scene.scene import (
    Box,
    Cell,
    Chart,
    Colour,
    Deck,
    Formula,
    Gradient,
    Item,
    Paragraph,
    Picture,
    Run,
    Series,
    Shadow,
    Shape,
    Slide,
    Stop,
    Stroke,
    Table,
    TextBox,
)

RED, BLUE, WHITE, GREY = Colour(220, 30, 40), Colour(20, 60, 200), Colour(255, 255, 255), Colour(120, 120, 120, 0.5)
FADE = Gradient((Stop(0, RED), Stop(1, BLUE)), 135)


def png(colour: tuple[int, int, int] = (200, 80, 40), size: tuple[int, int] = (30, 20), kind: str = "PNG") -> bytes:
    """A small picture."""
    target = io.BytesIO()
    Image.new("RGB", size, colour).save(target, kind)
    return target.getvalue()


def run(text: str, size: float = 30, **style: Any) -> Run:
    """A run in a font that is there."""
    return Run(text=text, size=size, **{"family": "Inter", **style})


def text(*runs: Run, x: float = 80, y: float = 80, width: float = 600, **more: Any) -> TextBox:
    """A box of one paragraph."""
    style = {key: more.pop(key) for key in ("align", "pitch", "lines", "bullet", "indent", "is_rtl") if key in more}
    size = max(each.size for each in runs)
    more = {"first_baseline": size, "lines": style.get("lines", 1), **more}
    return TextBox(box=Box(x, y, width, 1.2 * size), paragraphs=(Paragraph(runs=runs, **style),), **more)


def table() -> Table:
    """A table with a cell over two columns and one over two rows."""
    line = Stroke(2, GREY)

    def cell(words: str, **more: Any) -> Cell:
        paragraph = Paragraph(runs=(run(words, 24),), first_baseline=40)
        return Cell(paragraphs=(paragraph,), strokes=(line, None, line, None), padding=(16, 20, 16, 20), **more)

    rows = (
        (cell("Head", fill=WHITE), cell("Wide", columns=2), None),
        (cell("Tall", rows=2), cell("b"), cell("c")),
        (None, cell("d"), Cell()),
    )
    return Table(box=Box(80, 700, 800, 180), column_widths=(200, 300, 300), row_heights=(60, 60, 60), cells=rows)


def chart(kind: str = "column", **more: Any) -> Chart:
    """A chart of two rows of numbers."""
    series = (Series(name="x", values=(1, 2, 3.5), fill=RED), Series(name="y", values=(2, None, 1), fill=BLUE))
    return Chart(box=Box(920, 700, 450, 300), kind=kind, categories=("a", "b", "c"), **{"series": series, **more})


def shapes() -> list[Item]:
    """Shapes of every outline and paint."""
    around, thick = (Stroke(4, BLUE),) * 4, Stroke(10, RED)
    radii = [(0, 0, 0, 0), (16, 16, 16, 16), (70, 70, 70, 70), (40, 40, 0, 0), (60, 10, 30, 0)]
    made: list[Item] = [
        Shape(box=Box(40 + 260 * index, 40, 200, 140), fill=WHITE, strokes=around, radii=each)
        for index, each in enumerate(radii)
    ]
    sides: list[tuple[Stroke | None, Stroke | None, Stroke | None, Stroke | None]] = [
        (None, None, None, thick),
        (thick, None, None, None),
        (Stroke(1, GREY), Stroke(1, GREY), thick, Stroke(1, GREY)),
        (None, Stroke(6, BLUE, "dashed"), None, Stroke(6, BLUE, "dotted")),
    ]
    for index, strokes in enumerate(sides):
        box = Box(40 + 340 * index, 280, 300, 120, 5.0 * index)
        shade = Shadow(0, 10, 30, -4, Colour(0, 0, 0, 0.3), is_inner=index == 1)
        made.append(Shape(box=box, fill=FADE, radii=(16, 16, 16, 16), strokes=strokes, shadow=shade))
    radial = Gradient((Stop(0, WHITE), Stop(1, BLUE)), None, 0.2, 0.3)
    made.append(Shape(box=Box(40, 440, 200, 100), fill=radial, is_ellipse=True, strokes=around))
    made.append(Shape(box=Box(280, 440, 200, 100, flip_x=True), fill=GREY, polygon=((0.5, 0), (1, 1), (0, 1))))
    halves = Gradient((Stop(0, RED), Stop(0.5, RED), Stop(0.5, BLUE), Stop(1, BLUE)), 90)
    made.append(Shape(box=Box(520, 440, 200, 100), fill=halves, shadow=Shadow(0, 0, 0, 4, GREY)))
    return made


def texts() -> list[Item]:
    """Text in every style."""
    listed = TextBox(
        box=Box(80, 400, 600, 200),
        first_baseline=30,
        lines=3,
        paragraphs=tuple(
            Paragraph(runs=(run(words),), bullet=mark, indent=40, first_baseline=30 + 60 * index, level=index)
            for index, (words, mark) in enumerate((("First", "•"), ("Second", "1."), ("Third", "a.")))
        ),
    )
    styled = text(
        run("E=mc", 40),
        run("2", 26, baseline=0.5),
        run(" link", 40, link="https://example.com/?a=b&c", underline=True, fill=RED),
        run(" high", 40, highlight=Colour(255, 255, 0), strike=True),
        run(" faded", 40, fill=FADE, spacing=2.5, weight=800, family="Inter Extra Bold", italic=True),
        run(" hollow", 40, outline=Stroke(2, BLUE), is_hollow=True),
        run(" jump", 40, link="#slide-2", shadow=Shadow(1, 2, 3, 0, GREY)),
        y=200,
    )
    return [
        text(run("A title", 72, weight=700), is_title=True),
        styled,
        listed,
        text(run("שלום", family="Noto Sans Hebrew"), is_rtl=True, align="right", y=300),
        text(run("縦書き", family="Noto Sans CJK JP"), is_vertical=True, x=1700),
        text(run("one\ntwo", 30), pitch=45, lines=2, align="center", y=600, alpha=0.5),
        text(run("kept on its line"), wraps=False, x=1000),
    ]


def formula() -> Formula:
    """A fraction."""
    above, below = (
        text(run(letter, family="LM Roman 10"), x=1500, y=y, width=20) for letter, y in (("n", 80), ("2", 130))
    )
    rule = Shape(box=Box(1495, 120, 30, 2), fill=RED)
    return Formula(items=(above, rule, below), source=r"\frac{n}{2}", box=Box(1495, 80, 30, 90))


def pictures() -> list[Item]:
    """Pictures, cut, rounded, faded and with a drawing."""
    drawing = b'<svg xmlns="http://www.w3.org/2000/svg"><script>x()</script><rect width="9" height="9"/></svg>'
    return [
        Picture(box=Box(40, 780, 300, 200), data=png(), alt='A "picture" & more', link="https://example.com/"),
        Picture(box=Box(380, 780, 200, 200), data=png(), crop=(0.2, 0, 0.1, 0), radii=(100, 100, 100, 100)),
        Picture(box=Box(620, 780, 300, 200, -10), data=png(kind="WEBP"), alpha=0.4, svg=drawing),
    ]


def deck(*slides: list[Item], **more: Any) -> Deck:
    """A deck of these slides, 1920 x 1080."""
    return Deck(slides=tuple(Slide(width=1920, height=1080, items=tuple(items), **more) for items in slides))


def everything() -> Deck:
    """A deck with every kind of thing."""
    first, second = deck([*shapes(), *pictures()], [*texts(), table(), chart(), formula()]).slides
    painted = Slide(width=1920, height=1080, items=second.items, background=FADE, notes="Say hello\nand goodbye")
    last = Slide(width=1920, height=1080, items=(), background_picture=png(), notes="  ")
    return Deck(slides=(first, painted, last), title="Demo", lang="en-GB")
