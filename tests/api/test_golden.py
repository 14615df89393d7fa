"""The runner of golden files notices what is not as written."""

from __future__ import annotations

from typing import Any

import pytest

from api import golden


def fits(found: Any, wanted: Any) -> dict[str, Any]:
    kept: dict[str, Any] = {}
    golden._match(found, wanted, kept, "")
    return kept


@pytest.mark.parametrize(
    ("found", "wanted"),
    [
        ({"a": [1, "x", None]}, {"a": [1, "x", None]}),
        ({"n": 5, "m": 1.5}, {"n": "<int:0..5>", "m": "<number:1..>"}),
        ("abc", "<string:a.c>"),
        (None, "<any>"),
        ("2026-01-01 is not a placeholder", "2026-01-01 is not a placeholder"),
    ],
)
def test_what_is_as_written_passes(found: Any, wanted: Any) -> None:
    fits(found, wanted)


@pytest.mark.parametrize(
    ("found", "wanted"),
    [
        ({"a": 1, "b": 2}, {"a": 1}),
        ({}, {"a": 1}),
        ([1, 2], [1]),
        ([1], {"a": 1}),
        (True, 1),
        (True, "<int>"),
        (6, "<int:0..5>"),
        (1.5, "<int>"),
        ("abcd", "<string:a.c>"),
        (None, "<keep:id>"),
        (12.0, "<time>"),
        ("1999-12-31T00:00:00Z", "<iso>"),
    ],
)
def test_what_is_not_as_written_fails(found: Any, wanted: Any) -> None:
    with pytest.raises(AssertionError):
        fits(found, wanted)


def test_what_is_kept_is_put_into_later_steps() -> None:
    kept = fits({"id": "sbx_1", "n": 7}, {"id": "<keep:session:sbx_[0-9]>", "n": "<keep:n>"})
    filled = golden._fill({"path": "/sessions/{{session}}", "n": "{{n}}"}, kept)

    assert filled == {"path": "/sessions/sbx_1", "n": 7}
