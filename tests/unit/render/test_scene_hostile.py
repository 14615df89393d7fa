"""Snapshots that lie: a slide is built, or refused with SnapshotError, but nothing hangs and nothing else is raised."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from unit.render.snapshots import Element, box, raw_of, snapshot, span, text
from warren.render.scene.build import build_slide
from warren.render.scene.raw import RawSlide
from warren.render.scene.scene import Slide
from warren.render.scene.snapshot import Page, SnapshotError
from warren.render.scene.styles import STYLES


def honest() -> dict[str, Any]:
    cell = box(0, 100, 50, 20, text(0, 100, "cell"), display="table-cell")
    table = box(0, 100, 50, 20, box(0, 100, 50, 20, cell, display="table-row"), display="table")
    chip = span(
        0, 0, 40, 24, text(0, 0, "chip"), background_color="rgb(1, 2, 3)", transform="matrix(0, 1, -1, 0, 0, 0)"
    )
    image = Element("img", (0, 200, 10, 10), source="data:image/png;base64,AAAA")
    return snapshot(box(0, 0, 1000, 500, box(0, 0, 400, 24, chip, text(50, 0, "and text")), table, image))


def tried(said: Any) -> Slide | None:
    try:
        return build_slide(RawSlide(0, 1, Page(said)))
    except SnapshotError:
        return None


def test_the_honest_one_is_built() -> None:
    slide = tried(honest())
    assert slide is not None
    assert len(slide.items) >= 3


@pytest.mark.parametrize(
    "said", [None, [], {}, {"documents": []}, {"documents": [{}], "strings": []}, {"documents": 3}]
)
def test_what_is_no_snapshot_is_refused(said: Any) -> None:
    with pytest.raises(SnapshotError):
        Page(said)


def test_a_parent_that_is_its_own_child_ends_nothing() -> None:
    said = honest()
    count = len(said["documents"][0]["nodes"]["parentIndex"])
    said["documents"][0]["nodes"]["parentIndex"] = list(range(count))
    tried(said)
    said["documents"][0]["nodes"]["parentIndex"] = [(at + 1) % count for at in range(count)]
    tried(said)


def test_a_page_nested_without_end_is_refused() -> None:
    inner = box(0, 0, 1, 1)
    for _ in range(900):
        inner = box(0, 0, 1, 1, inner)
    with pytest.raises(SnapshotError, match="nested too deeply"):
        build_slide(raw_of(inner))


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf, 1e308, -1e308])
def test_bounds_that_are_no_numbers_give_finite_boxes(number: float) -> None:
    said = honest()
    for bounds in said["documents"][0]["layout"]["bounds"][1:]:
        bounds[0] = bounds[2] = number
    slide = tried(said)
    assert slide is not None
    for item in slide.items:
        assert all(map(math.isfinite, (item.box.x, item.box.y, item.box.width, item.box.height)))


_VALUES = st.one_of(
    st.sampled_from(
        [
            "", "none", "auto", "matrix(1e9, 1e9, 0, 0, 0, 0)", "matrix(0, 0, 0, 0, 0, 0)", "1e999px", "-5px", "NaN",
            "linear-gradient(rgb(0, 0, 0) 50%, rgb(0, 0, 0) 10%)", "polygon(0 0, 0 0, 0 0)", "table", "table-cell",
            "radial-gradient(circle 0px, rgb(0, 0, 0), rgb(1, 1, 1))", "flex", "inline", "fixed",
            "url(data:image/png;base64,AAAA)",
            "vertical-rl", "rtl", "hidden", "scroll", "text", "0px 0px 0px rgb(", "50% 50%", "(" * 500, "a, " * 500,
        ]
    ),
    st.text(max_size=30),
)  # fmt: skip


@settings(max_examples=60)
@given(st.data())
def test_any_style_may_say_anything(data: st.DataObject) -> None:
    said = honest()
    styles = said["documents"][0]["layout"]["styles"]
    for _ in range(data.draw(st.integers(1, 12))):
        row = data.draw(st.integers(0, len(styles) - 1))
        said["strings"].append(data.draw(_VALUES))
        styles[row][data.draw(st.integers(0, len(STYLES) - 1))] = len(said["strings"]) - 1
    slide = tried(said)
    assert slide is None or isinstance(slide, Slide)


@settings(max_examples=60)
@given(st.data())
def test_any_number_may_be_any_other(data: st.DataObject) -> None:
    said = json.loads(json.dumps(honest()))
    document = said["documents"][0]
    columns = [
        (document[part], name)
        for part, name in (
            ("nodes", "parentIndex"), ("nodes", "nodeName"), ("layout", "nodeIndex"), ("layout", "text"),
            ("layout", "paintOrders"), ("textBoxes", "layoutIndex"), ("textBoxes", "start"), ("textBoxes", "length"),
        )
    ]  # fmt: skip
    for _ in range(data.draw(st.integers(1, 6))):
        table, name = data.draw(st.sampled_from(columns))
        row = data.draw(st.integers(0, len(table[name]) - 1))
        table[name][row] = data.draw(st.one_of(st.integers(-5, 200), st.sampled_from([None, "x", 10**12, -1])))
    tried(said)
