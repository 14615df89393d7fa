"""Text of the page as text boxes: one for a block, with the lines, fonts and colours that the browser painted."""

from __future__ import annotations

import pytest

from unit.render.snapshots import Element, box, built, lines, raw_of, span, text
from warren.render.scene.build import build_slide
from warren.render.scene.fonts import Painted
from warren.render.scene.scene import RAISED, Colour, Gradient, Paragraph, Slide, Stroke, TextBox
from warren.render.scene.scripts import kinds


def boxes(slide: Slide) -> list[TextBox]:
    return [item for item in slide.items if isinstance(item, TextBox)]


def words(paragraph: Paragraph) -> str:
    return "".join(run.text for run in paragraph.runs)


def test_inline_elements_are_runs_of_one_box() -> None:
    bold = span(60, 10, 40, 24, text(60, 10, "bold"), font_weight="700")
    slide = built(box(10, 10, 500, 24, text(10, 10, "Some "), bold, text(100, 10, " text")))
    (one,) = boxes(slide)
    assert [(run.text, run.weight) for run in one.paragraphs[0].runs] == [("Some ", 400), ("bold", 700), (" text", 400)]
    assert (one.box.x, one.box.y, one.lines, one.wraps) == (10, 10, 1, False)


def test_lines_with_room_wrap_by_themselves_and_tight_ones_are_broken_by_hand() -> None:
    loose = lines("one two three four", (0, 0, 130, 24, "one two three"), (0, 30, 40, 24, "four"))
    (soft,) = boxes(built(box(0, 0, 140, 60, loose)))
    assert soft.wraps
    assert words(soft.paragraphs[0]) == "one two three four"
    assert soft.paragraphs[0].pitch == 30
    assert 130 < soft.box.width < 130 + 40
    tight = lines("abcdefgh i j", (0, 0, 80, 24, "abcdefgh"), (0, 30, 1, 24, "i j"))
    (hard,) = boxes(built(box(0, 0, 80, 60, tight)))
    assert not hard.wraps
    assert words(hard.paragraphs[0]) == "abcdefgh\ni j"


def test_a_break_of_the_page_stays_one() -> None:
    end = Element("br", (50, 0, 0, 24), words="\n", lines=[(50, 0, 0, 24, "\n")])
    end_parent = box(0, 0, 300, 60, text(0, 0, "above"), end, text(0, 30, "below"))
    slide = built(end_parent)
    assert words(boxes(slide)[0].paragraphs[0]).split() == ["above", "below"]


def test_lines_of_other_sizes_are_other_paragraphs_with_their_own_baselines() -> None:
    small = span(0, 60, 60, 12, lines("little", (0, 60, 60, 12, "little")), font_size="10px")
    (one,) = boxes(built(box(0, 0, 300, 80, lines("large", (0, 0, 50, 48, "large")), small, font_size="40px")))
    first, second = one.paragraphs
    assert (first.first_size, second.first_size) == (40, 10)
    assert first.first_baseline < second.first_baseline
    assert second.space_before > 0


def test_chips_in_a_line_keep_their_distance_as_wider_spaces() -> None:
    chip = span(54, 0, 52, 24, text(60, 0, "code"), background_color="rgb(1, 1, 1)")
    (one,) = boxes(built(box(0, 0, 400, 24, text(0, 0, "Use "), chip, text(106, 0, " now"))))
    assert words(one.paragraphs[0]) == "Use code now"
    wide = [run for run in one.paragraphs[0].runs if run.text == " "]
    assert [round(run.spacing) for run in wide] == [20, 6]


def test_a_marker_and_a_mark_before_are_bullets_and_numbers_count_on() -> None:
    def item(y: float, mark: str, *, pseudo: str = "marker") -> Element:
        sign = Element("::" + pseudo, (0, y, 20, 24), [text(0, y, mark)], {"display": "inline-block"}, pseudo=pseudo)
        return box(30, y, 300, 24, sign, text(30, y, "point"), display="list-item")

    found = [one.paragraphs[0] for one in boxes(built(item(0, "• "), item(30, "4. "), item(60, "✓", pseudo="before")))]
    assert [(one.bullet, one.bullet_start, one.indent) for one in found] == [("•", 1, 30), ("1.", 4, 30), ("✓", 1, 30)]
    assert [words(one) for one in found] == ["point"] * 3


def test_text_seen_through_takes_the_colour_that_is_seen() -> None:
    faint = text(10, 10, "faint")
    slide = built(box(0, 0, 200, 50, faint, background_color="rgb(0, 0, 0)", **_ink("rgba(255, 255, 255, 0.5)")))
    assert boxes(slide)[0].paragraphs[0].runs[0].fill == Colour(128, 128, 128)


def test_in_a_see_through_group_text_shines_on_what_is_behind_the_group() -> None:
    group = box(
        0,
        0,
        200,
        50,
        text(10, 10, "white"),
        background_color="rgb(0, 0, 0)",
        opacity="0.5",
        **_ink("rgb(255, 255, 255)"),
    )
    slide = built(group, background_color="rgb(255, 255, 255)")
    assert boxes(slide)[0].paragraphs[0].runs[0].fill == Colour(255, 255, 255)


def test_text_that_a_gradient_shines_through_has_the_gradient() -> None:
    heading = box(
        0,
        0,
        200,
        50,
        text(10, 10, "glow"),
        background_image="linear-gradient(90deg, rgb(255, 0, 0), rgb(0, 0, 255))",
        background_clip="text",
        **_ink("rgba(0, 0, 0, 0)"),
    )
    slide = built(heading)
    (one,) = slide.items
    assert isinstance(one, TextBox)
    assert isinstance(one.paragraphs[0].runs[0].fill, Gradient)


def test_each_word_has_its_part_of_the_gradient() -> None:
    heading = box(
        0,
        0,
        200,
        50,
        text(0, 10, "left right", width=200),
        background_image="linear-gradient(90deg, rgb(200, 0, 0), rgb(0, 0, 200))",
        background_clip="text",
        **_ink("rgba(0, 0, 0, 0)"),
    )
    first, second = boxes(built(heading))[0].paragraphs[0].runs
    assert (first.text, second.text) == ("left ", "right")
    assert isinstance(first.fill, Gradient)
    assert isinstance(second.fill, Gradient)
    assert first.fill.stops[0].colour == Colour(200, 0, 0)
    assert first.fill.stops[-1].colour == second.fill.stops[0].colour == Colour(100, 0, 100)


def test_a_number_has_its_own_weight_and_not_that_of_the_text() -> None:
    def item(y: float, mark: str, number: str, words: str) -> Element:
        sign = Element("::marker", (0, y, 20, 24), [text(0, y, mark)], {"display": "inline-block"}, pseudo="marker")
        sign.style["font-weight"] = number
        point = span(30, y, 50, 24, text(30, y, "point"), font_weight=words)
        return box(30, y, 300, 24, sign, point, display="list-item")

    found = [one.paragraphs[0] for one in boxes(built(item(0, "1. ", "700", "400"), item(30, "2. ", "700", "700")))]
    assert [[(run.text, run.weight) for run in one.runs] for one in found] == [
        [("\u200b", 700), ("point", 400)],
        [("point", 700)],
    ]


def test_raised_text_keeps_its_size_for_which_the_line_has_room() -> None:
    small = span(50, 4, 10, 16, lines("2", (50, 4, 10, 16, "2")), font_size="16px")
    (one,) = boxes(built(box(0, 10, 300, 24, text(0, 10, "E=mc", width=50), small)))
    (line,) = one.paragraphs
    plain, raised = line.runs
    assert (plain.baseline, raised.size) == (0, 16)
    assert 0.3 < raised.baseline < 0.9
    assert line.first_size == pytest.approx(16 / RAISED)
    # What wraps by itself has one pitch, whatever is raised in it.
    small = span(130, 4, 10, 16, lines("2", (130, 4, 10, 16, "2")), font_size="16px")
    above, below = text(0, 10, "one two three"), lines(" four", (0, 40, 40, 24, "four"))
    (soft,) = boxes(built(box(0, 10, 150, 60, above, small, below)))
    assert (soft.wraps, [paragraph.first_size for paragraph in soft.paragraphs]) == (True, [20])


def test_a_sign_that_is_asked_for_as_an_emoji_is_painted_as_one() -> None:
    raw = raw_of(box(0, 0, 300, 24, text(0, 0, "a \u26a0\ufe0f b")))
    fonts = (Painted("Test Sans", "TestSans"), Painted("Noto Color Emoji", "NotoColorEmoji"))
    for key in [("Test Sans", "400", "normal", kinds("a \u26a0\ufe0f b"))]:
        raw.fonts[key] = fonts
    runs = boxes(build_slide(raw))[0].paragraphs[0].runs
    assert [run.text for run in runs if "Emoji" in run.family] == ["\u26a0\ufe0f"]


def test_text_that_is_only_outlined_has_its_outline_and_the_colour_of_it_for_programs_without() -> None:
    stroke = {"_webkit_text_stroke_width": "2px", "_webkit_text_stroke_color": "rgb(1, 2, 3)"}
    hollow = box(0, 0, 300, 24, text(0, 0, "hollow"), **stroke, **_ink("rgba(0, 0, 0, 0)"))
    filled = box(0, 40, 300, 24, text(0, 40, "filled"), **stroke)
    first, second = (one.paragraphs[0].runs[0] for one in boxes(built(hollow, filled)))
    assert (first.outline, first.is_hollow, first.fill) == (Stroke(2, Colour(1, 2, 3)), True, Colour(1, 2, 3))
    assert (second.outline, second.is_hollow) == (Stroke(2, Colour(1, 2, 3)), False)


def test_turned_text_is_measured_upright_and_turned_back() -> None:
    # 100 x 20 turned by a quarter about its middle at (200, 200).
    turned = box(
        190, 150, 20, 100, lines("ten letter", (190, 150, 20, 100, "ten letter")), transform="matrix(0, 1, -1, 0, 0, 0)"
    )
    (one,) = boxes(built(turned))
    assert one.box.rotation == 90
    assert (round(one.box.x), round(one.box.y), round(one.box.width), round(one.box.height)) == (150, 190, 100, 20)


def test_right_to_left_pieces_are_read_in_their_order() -> None:
    # As the browser lists them: from left to right.
    mixed = lines("abc 24 def", (60, 0, 40, 24, " def"), (100, 0, 20, 24, "24"), (120, 0, 40, 24, "abc "))
    (one,) = boxes(built(box(0, 0, 300, 24, mixed, direction="rtl")))
    assert words(one.paragraphs[0]) == "abc 24 def"
    assert (one.paragraphs[0].align, one.paragraphs[0].is_rtl) == ("right", True)


def test_hidden_and_clipped_text_is_left_out_but_what_can_be_scrolled_to_is_kept() -> None:
    hidden = box(0, 0, 100, 24, text(0, 0, "hidden"), visibility="hidden")
    clip = {"overflow_x": "hidden", "overflow_y": "hidden"}
    cut = box(0, 50, 100, 20, box(0, 100, 100, 24, text(0, 100, "cut")), **clip)
    scrolled = box(0, 200, 100, 20, box(0, 260, 100, 24, text(0, 260, "below")), overflow_x="auto", overflow_y="auto")
    assert [one.name for one in boxes(built(hidden, cut, scrolled))] == ["below"]


def test_the_first_heading_is_the_title() -> None:
    small, large = box(0, 0, 300, 24, text(0, 0, "Second")), box(0, 50, 300, 24, text(0, 50, "First"))
    small.name, large.name = "h2", "h1"
    slide = built(small, large)
    assert slide.title == "First"
    assert [one.is_title for one in boxes(slide)] == [False, True]


def test_links_lead_to_the_web_only() -> None:
    def link(y: float, address: str) -> Element:
        made = span(0, y, 40, 24, text(0, y, "here"))
        made.name, made.attributes = "a", {"href": address}
        return box(0, y, 300, 24, made)

    slide = built(link(0, "https://example.com/a?b=c"), link(40, "javascript:alert(1)"), link(80, "file:///etc/passwd"))
    assert [one.paragraphs[0].runs[0].link for one in boxes(slide)] == ["https://example.com/a?b=c", "", ""]


def test_fonts_that_came_with_the_page_keep_their_names_and_the_spacing_of_the_style() -> None:
    raw = raw_of(box(0, 0, 300, 24, text(0, 0, "brand"), letter_spacing="2px"))
    raw.fonts[("Test Sans", "400", "normal", "latin")] = (Painted("Brand Sans", "BrandSans-Regular"),)
    run = boxes(build_slide(raw))[0].paragraphs[0].runs[0]
    assert (run.family, run.spacing) == ("Brand Sans", 2)


def _ink(colour: str) -> dict[str, str]:
    return {"color": colour, "_webkit_text_fill_color": colour}
