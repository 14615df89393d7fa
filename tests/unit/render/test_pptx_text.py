"""Text boxes: where their lines come to lie, and what a run keeps of its style."""

from __future__ import annotations

from typing import Any

import pytest

from unit.render import scenes
from unit.render.ooxml import name
from unit.render.test_pptx_deck import opened
from warren.render.pptx import seat
from warren.render.pptx.boxes import seated
from warren.render.pptx.page import web_address
from warren.render.scene.scene import Box, Gradient, Paragraph, Stop, TextBox


def written(*boxes: TextBox) -> list[Any]:
    """The `a:p` of the boxes on one slide."""
    slide = opened(scenes.deck([*boxes])).slides[0]
    return [each for each in slide.element.iter() if name(each) == "p"]


def found(element: Any, tag: str) -> list[Any]:
    """Elements of this name below another."""
    return [each for each in element.iter() if name(each) == tag]


def test_a_single_line_sits_on_its_baseline() -> None:
    box = scenes.text(scenes.run("x", 40), y=100, first_baseline=45)
    assert seated(box).y == pytest.approx(100 + 45 - 40)
    assert seated(box).height == pytest.approx(48)


@pytest.mark.parametrize(("pitch", "above"), [(48, 40), (60, 52), (72, 64), (40, 32), (36, 28.8)])
def test_lines_of_any_pitch_sit_on_their_first_baseline(pitch: float, above: float) -> None:
    box = scenes.text(scenes.run("a\nb", 40), y=100, first_baseline=50, pitch=pitch, lines=2)
    assert seated(box).y == pytest.approx(100 + 50 - above)
    spacing = found(written(box)[0], "spcPct")[0]
    assert int(spacing.get("val")) == round(pitch / 48 * 100_000)


def test_paragraphs_keep_their_own_baselines() -> None:
    first = Paragraph(runs=(scenes.run("a", 40),), first_baseline=40, pitch=60, lines=2)
    second = Paragraph(runs=(scenes.run("b", 20),), first_baseline=150)
    # The first ends 8 px below its second baseline, at 108; the second begins 20 px above its own, at 130.
    assert seat.gaps([first, second]) == [0.0, pytest.approx(22)]
    assert seat.total([first, second]) == pytest.approx(2 * 60 + 22 + 24)


def test_a_turned_box_is_moved_in_its_own_frame() -> None:
    upright = scenes.text(scenes.run("x", 40), first_baseline=50)
    turned = TextBox(box=Box(80, 80, 600, 48, 90), paragraphs=upright.paragraphs, first_baseline=50)
    moved = seated(turned)
    # Down by 10 of the text is left by 10 of the slide; the slack to its right is downwards.
    assert moved.x + moved.width / 2 == pytest.approx(80 + 300 - 10)
    assert moved.y + moved.height / 2 == pytest.approx(104 + (seated(upright).width - 600) / 2)


def test_room_for_wider_letters_is_added_where_the_text_does_not_start() -> None:
    for align, left, right in (("left", 0, 1), ("right", 1, 0), ("center", 1, 1)):
        box = seated(scenes.text(scenes.run("x"), align=align))
        assert (box.x < 80) == bool(left)
        assert (box.x + box.width > 680) == bool(right)


def test_text_that_wraps_by_itself_gets_no_room_for_another_word() -> None:
    assert seated(scenes.text(scenes.run("so many words"), lines=3, pitch=40)).width == 601


def test_a_run_keeps_its_style() -> None:
    (paragraph,) = written(
        scenes.text(
            scenes.run("x", 33, weight=700, italic=True, underline=True, strike=True, spacing=-1.5, family_ea="Noto")
        )
    )
    (style,) = found(paragraph, "rPr")
    wanted = {"sz": "1650", "b": "1", "i": "1", "u": "sng", "strike": "sngStrike", "spc": "-75", "kern": "0"}
    assert {key: style.get(key) for key in wanted} == wanted
    assert [each.get("typeface") for each in style if name(each) in {"latin", "ea", "cs"}] == ["Inter", "Noto", "Inter"]


def test_a_face_that_names_its_weight_is_not_made_bold_again() -> None:
    runs = [scenes.run("x", weight=800, family=family) for family in ("Inter Extra Bold", "Inter", "Blackadder")]
    styles = found(written(scenes.text(*runs))[0], "rPr")
    assert [style.get("b") for style in styles] == ["0", "1", "1"]


def test_breaks_of_the_page_are_breaks() -> None:
    (paragraph,) = written(scenes.text(scenes.run("one\ntwo\n"), lines=2, pitch=40))
    assert [name(each) for each in paragraph] == ["pPr", "r", "br", "r", "br"]


def test_lists_have_real_bullets_and_numbers() -> None:
    marks = ("•", "1.", "a.", "I.", "→")
    boxes = [scenes.text(scenes.run("x"), bullet=mark, indent=40) for mark in marks]
    styles = [found(each, "pPr")[0] for each in written(*boxes)]
    assert {(style.get("marL"), style.get("indent")) for style in styles} == {("254000", "-254000")}
    kinds = [(name(style[-1]), style[-1].get("char") or style[-1].get("type")) for style in styles]
    assert kinds == [
        ("buChar", "•"),
        ("buAutoNum", "arabicPeriod"),
        ("buAutoNum", "alphaLcPeriod"),
        ("buAutoNum", "romanUcPeriod"),
        ("buChar", "→"),
    ]


def test_links_lead_out_and_to_other_slides() -> None:
    out = scenes.text(scenes.run("a", link="https://example.com/x?a=b&c=d"), scenes.run("b", link="#slide-2"))
    first, _ = opened(scenes.deck([out], [])).slides
    runs = first.shapes[0].text_frame.paragraphs[0].runs
    assert runs[0].hyperlink.address == "https://example.com/x?a=b&c=d"
    jumps = [each for each in first.part.rels.values() if each.reltype.endswith("/slide")]
    assert [str(each.target_part.partname) for each in jumps] == ["/ppt/slides/slide2.xml"]


def test_links_elsewhere_are_left_out() -> None:
    bad = ["javascript:alert(1)", "file:///etc/passwd", "#slide-9", "#slide-0", "#top", "http://", "mailto:", "//x/y"]
    bad += ["http://[::1", "http://a:99999999/", "http://a b/", "https://x/" + "y" * 3_000, "\x00"]
    (paragraph,) = written(scenes.text(*(scenes.run("x", link=each) for each in bad)))
    assert found(paragraph, "hlinkClick") == []


def test_addresses_are_written_as_powerpoint_can_read_them() -> None:
    assert web_address(" https://example.com/ä b?q=<x>#y ") == "https://example.com/%C3%A4%20b?q=%3Cx%3E#y"
    assert web_address("mailto:a@example.com?subject=x y") == "mailto:a@example.com?subject=x%20y"
    assert web_address("HTTPS://EXAMPLE.COM/%20") == "HTTPS://EXAMPLE.COM/%20"


def test_the_second_colour_of_a_text_gradient_is_the_middle_one_for_libreoffice_takes_that() -> None:
    (paragraph,) = written(scenes.text(scenes.run("x", fill=scenes.FADE)))
    stops = [(each.get("pos"), each[0].get("val")) for each in found(paragraph, "gs")]
    assert stops == [("0", "DC1E28"), ("0", "782D78"), ("0", "DC1E28"), ("0", "DC1E28"), ("100000", "143CC8")]
    empty = scenes.text(
        scenes.run("x", fill=Gradient((), 90)), scenes.run("y", fill=Gradient((Stop(0, scenes.RED),), 90))
    )
    assert found(written(empty)[0], "gradFill") == []
