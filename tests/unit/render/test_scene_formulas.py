"""Formulas: letters and rules where the browser painted them, in one group that is named by what was written."""

from __future__ import annotations

import pytest

from unit.render import scenes
from unit.render.snapshots import Element, box, built, raw_of, span, text
from unit.render.test_pptx_deck import opened
from warren.render.pptx.xml import NAMESPACES
from warren.render.scene.build import build_slide
from warren.render.scene.fonts import Painted, face_of
from warren.render.scene.glyphs import MATH, glyphs_of, ink_of, tall_outline
from warren.render.scene.paths import contours
from warren.render.scene.scene import Box, Colour, Formula, Shape, TextBox


def katex(x: float, y: float, width: float, *painted: Element, tex: str = "") -> Element:
    """A formula as KaTeX leaves it: hidden MathML, and what is painted."""
    note = Element("annotation", (0, 0, 0, 0), [Element("#text", (0, 0, 0, 0), words=tex, is_shown=False)])
    note.is_shown = False
    math = Element("math", (x, y, width, 24), [text(x, y, "twice"), note], {"display": "math"})
    hidden = box(x, y, 1, 1, math, position="absolute", overflow_x="hidden", overflow_y="hidden")
    hidden.attributes["class"] = "katex-mathml"
    base = span(x, y, width, 24, *painted, display="inline-block")
    base.attributes["class"] = "base"
    made = span(x, y, width, 24, hidden, span(x, y, width, 24, base))
    made.attributes["class"] = "katex"
    return made


def fraction(x: float, y: float) -> list[Element]:
    """One above a line above another, in the tables that KaTeX makes of them."""
    rule = span(x, y + 14, 40, 2, display="inline-block", border_bottom_width="2px", border_bottom_style="solid")
    rule.style["border-bottom-color"] = "rgb(9, 8, 7)"
    cell = box(x, y, 40, 30, text(x, y - 10, "n"), rule, text(x, y + 16, "2"), display="table-cell")
    return [box(x, y, 40, 30, box(x, y, 40, 30, cell, display="table-row"), display="inline-table")]


def test_a_formula_is_its_letters_and_rules_where_they_are_painted_named_by_its_tex() -> None:
    slide = built(box(10, 50, 600, 40, katex(100, 60, 40, *fraction(100, 60), tex=r"\frac{n}{2}")))
    (made,) = slide.items
    assert isinstance(made, Formula)
    assert made.source == r"\frac{n}{2}"
    letters = [item for item in made.items if isinstance(item, TextBox)]
    assert [(one.paragraphs[0].runs[0].text, one.box.y, one.wraps) for one in letters] == [
        ("n", 50, False),
        ("2", 76, False),
    ]
    (rule,) = [item for item in made.items if isinstance(item, Shape)]
    assert rule.box == Box(100, 74, 40, 2)
    assert rule.strokes[2] is not None
    assert rule.strokes[2].colour == Colour(9, 8, 7)


def test_text_around_a_formula_flows_on_and_leaves_it_room() -> None:
    formula = katex(60, 0, 90, text(60, 0, "E", width=90), tex="E")
    (one, formula_) = built(box(0, 0, 500, 24, text(10, 0, "Here "), formula, text(150, 0, " is."))).items
    assert isinstance(one, TextBox)
    assert isinstance(formula_, Formula)
    before, room, after = one.paragraphs[0].runs
    assert (before.text, room.text.strip("\u00a0"), after.text) == ("Here ", "", " is.")
    assert room.size * len(room.text) * 0.27 == pytest.approx(90, rel=0.02)
    assert (one.box.x, one.box.width) == (10, 180)


def test_lines_of_a_centred_text_keep_the_room_of_a_formula_at_their_end_and_break_by_hand() -> None:
    formula = katex(140, 30, 60, text(140, 30, "x", width=60), tex="x")
    words = box(0, 0, 300, 60, text(40, 0, "a longer line of text", width=220), text(100, 30, "end "), formula)
    words.style["text-align"] = "center"
    one = next(item for item in built(words).items if isinstance(item, TextBox))
    assert not one.wraps
    said = "".join(run.text for run in one.paragraphs[0].runs)
    assert said.startswith("a longer line of text\nend ")
    assert said.endswith("\u00a0")


def test_roots_are_outlines_cut_where_the_page_cuts_them() -> None:
    path = Element("path", (20, 0, 4000, 20), attributes={"d": "M0 0h400v2H0z"}, style={"fill": "rgb(1, 2, 3)"})
    svg = Element("svg", (20, 0, 100, 20), [path], {"overflow-x": "hidden", "overflow-y": "hidden"})
    (made,) = built(box(0, 0, 500, 30, katex(20, 0, 100, svg, tex=r"\sqrt{x}"))).items
    assert isinstance(made, Formula)
    (line,) = made.items
    assert isinstance(line, Shape)
    assert line.box == Box(20, 0, 100, 20)
    assert line.fill == Colour(1, 2, 3)
    assert sorted(line.polygon) == [(0, 0), (0, 1), (1, 0), (1, 1)]


def test_the_line_of_a_fraction_of_mathml_lies_between_its_parts() -> None:
    up = Element("mi", (100, 10, 20, 10), [text(100, 5, "a", width=20)], {"display": "block math"})
    down = Element("mi", (100, 30, 20, 10), [text(100, 25, "b", width=20)], {"display": "block math"})
    fraction_ = Element("mfrac", (95, 10, 30, 30), [up, down], {"display": "block math"})
    math = Element("math", (95, 10, 30, 30), [fraction_], {"display": "math"})
    (made,) = built(box(0, 0, 500, 60, math)).items
    assert isinstance(made, Formula)
    (bar,) = [item for item in made.items if isinstance(item, Shape)]
    assert (bar.box.x, bar.box.width, bar.box.y + bar.box.height / 2) == (95, 30, 25)
    assert made.source == "a b"


def test_paths_are_read_with_all_their_words() -> None:
    square = [(0, 0), (10, 0), (10, 10), (0, 10)]
    assert contours("M0 0h10v10H0z") == [square]
    assert contours("m0,0 10,0 0,10 -10,0z M20 20l1 0 0 1z") == [square, [(20, 20), (21, 20), (21, 21)]]
    (bow,) = contours("M0 0C0 10 10 10 10 0s10-10 10 0Q25 10 30 0t10 0z")
    assert [bow[0], bow[-1]] == [(0, 0), (40, 0)]
    assert max(y for _, y in bow) == pytest.approx(7.5)
    assert contours("M0 0A5 5 0 0 0 10 10z") == []
    assert contours("nonsense M") == []


needs_fonts = pytest.mark.skipif(face_of(MATH) is None, reason="Latin Modern Math is not installed")


@needs_fonts
def test_letters_of_a_librarys_own_fonts_are_those_of_latin_modern() -> None:
    def said(family: str, letter: str) -> tuple[str, str, bool]:
        found = glyphs_of(Painted(family, family), letter, is_bold=False, is_italic="Italic" in family)
        assert found is not None
        return found.text, found.face.family, found.is_italic

    assert said("KaTeX_Math-Italic", "x") == ("x", "LM Roman 10", True)
    assert said("MathJax_Math-Italic", "\u03b1") == ("\U0001d6fc", "Latin Modern Math", False)
    assert said("KaTeX_AMS", "R")[0] == "\u211d"
    assert said("KaTeX_Fraktur", "g")[0] == "\U0001d524"
    assert glyphs_of(Painted("Inter", "Inter-Regular"), "x", is_bold=False, is_italic=False) is None


@needs_fonts
def test_a_bracket_taller_than_any_letter_is_an_outline_in_the_place_of_its_ink() -> None:
    raw = raw_of(box(0, 0, 500, 90, katex(50, 40, 20, span(50, 40, 20, 24, text(50, 40, "(", width=20)))))
    style = {"normal 400 20px Test Sans": (15.0, 5.0)}
    raw.metrics = style
    raw.fonts = {("Test Sans", "400", "normal", "latin"): (Painted("KaTeX_Size3", "KaTeX_Size3-Regular"),)}
    raw.inks = {("normal 400 20px Test Sans", "("): (-4.0, 29.0, 14.0, 19.0)}
    (made,) = build_slide(raw).items
    assert isinstance(made, Formula)
    (bracket,) = made.items
    assert isinstance(bracket, Shape)
    assert (bracket.box.x, bracket.box.width, bracket.box.height) == pytest.approx((54, 10, 48))
    assert len(bracket.polygon) > 20
    assert tall_outline("∞", 2.0) == (), "what has holes stays text"
    face = face_of(MATH)
    assert face is not None
    assert ink_of(face, "\ue123") is None


def test_a_formula_is_a_group_whose_alternative_text_is_its_source_and_that_is_where_its_parts_are() -> None:
    (group,) = opened(scenes.deck([scenes.formula()])).slides[0].shapes
    assert group.element.nvGrpSpPr.cNvPr.get("descr") == r"\frac{n}{2}"
    parts = list(group.shapes)
    assert [part.text_frame.text for part in parts] == ["n", "", "2"]
    assert group.left == min(part.left for part in parts)
    assert group.top + group.height == max(part.top + part.height for part in parts)
    places = [group.element.grpSpPr.find(f".//a:{name}", NAMESPACES) for name in ("off", "chOff", "ext", "chExt")]
    assert dict(places[0].attrib) == dict(places[1].attrib)
    assert dict(places[2].attrib) == dict(places[3].attrib)
