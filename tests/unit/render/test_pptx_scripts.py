"""Boundaries between East Asian and other letters."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from unit.render import scenes
from warren.render.pptx.libreoffice import untied
from warren.render.scene.scene import Run

JOINT = "\u200b"
SMALL = 100 * 0.28 / (0.28 + 0.24)


def pieces(*texts: str) -> list[tuple[str, float]]:
    """Texts of runs of 100 px, cut."""
    return [(run.text, run.size) for run in untied([scenes.run(text, 100) for text in texts])]


def test_text_of_one_script_stays_as_it_is() -> None:
    assert pieces("Plain words", " and more") == [("Plain words", 100), (" and more", 100)]
    assert pieces("中文。全角。") == [("中文。全角。", 100)]


def test_a_space_at_a_boundary_is_small() -> None:
    assert pieces("从 Markdown 到") == [("从", 100), (" ", SMALL), ("Markdown", 100), (" ", SMALL), ("到", 100)]


def test_a_boundary_without_space_has_a_joint() -> None:
    assert pieces("第3季") == [("第", 100), (JOINT, 2), ("3", 100), (JOINT, 2), ("季", 100)]


def test_boundaries_between_runs_count_and_those_across_lines_do_not() -> None:
    assert pieces("回到了 ", "3.8%") == [("回到了", 100), (" ", SMALL), ("3.8%", 100)]
    assert pieces("回到了", "3.8%") == [("回到了", 100), (JOINT, 2), ("3.8%", 100)]
    assert pieces("回到了\nabc") == [("回到了\nabc", 100)]


@given(st.lists(st.text("aB1 。中文\n…😀", max_size=8), max_size=5))
def test_no_letter_is_lost_or_moved(texts: list[str]) -> None:
    runs = [Run(text=text, size=10.0 + number, link=str(number)) for number, text in enumerate(texts)]
    cut = untied(runs)
    for run in runs:
        kept = "".join(each.text for each in cut if each.link == run.link)
        assert kept.replace(JOINT, "") == run.text
