"""Letter-spacing between two steps of LibreOffice's grid."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unit.render import scenes
from warren.render.pptx.libreoffice import spread
from warren.render.pptx.xml import Scale

WIDE = Scale.of(1920, 1080)
STEP = 360 / 6350
LONG = "Traced to the new recommender service under load, with caching and pooling."


def test_a_short_run_and_one_on_the_grid_stay_whole() -> None:
    assert len(spread(scenes.run("Short", spacing=0.5 * STEP), WIDE)) == 1
    assert len(spread(scenes.run(LONG, spacing=4 * STEP), WIDE)) == 1
    assert len(spread(scenes.run("x" * 90, spacing=0.5 * STEP), WIDE)) == 1


@given(st.floats(-3, 3))
def test_a_long_run_is_as_wide_as_wanted_and_loses_no_letter(spacing: float) -> None:
    parts = spread(scenes.run(LONG, spacing=spacing), WIDE)
    assert "".join(part.text for part in parts) == LONG
    if len(parts) == 2:
        assert sum(part.spacing * len(part.text) for part in parts) == pytest.approx(spacing * len(LONG), abs=0.7)
        assert parts[0].text.endswith(" ")
