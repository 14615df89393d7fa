"""The depth of JSON is measured right, without parsing it, and in little time."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from warren.domain.errors import InvalidRequest
from warren.gateway.api.bodies import MAX_DEPTH, check_depth

values = st.recursive(
    st.none() | st.integers() | st.text(alphabet='ab"\\[]{}é\n'),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(alphabet='k"[{\\'), inner, max_size=4),
    max_leaves=30,
)


def depth(value: Any) -> int:
    if isinstance(value, dict):
        return 1 + max(map(depth, value.values()), default=0)
    return 1 + max(map(depth, value), default=0) if isinstance(value, list) else 0


def is_refused(raw: bytes) -> bool:
    try:
        check_depth(raw)
    except InvalidRequest:
        return True
    return False


@settings(max_examples=300, deadline=None)
@given(values, st.integers(0, MAX_DEPTH + 10), st.booleans())
def test_exactly_what_is_deeper_than_the_limit_is_refused(value: Any, around: int, ascii_only: bool) -> None:
    for level in range(around):
        value = [value] if level % 2 else {'"{': value}
    raw = json.dumps(value, ensure_ascii=ascii_only).encode()

    assert is_refused(raw) == (depth(value) > MAX_DEPTH)


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=400) | st.text(alphabet='[]{}"\\a', max_size=400).map(str.encode))
def test_what_is_no_json_never_breaks_it(raw: bytes) -> None:
    assert is_refused(raw) in {True, False}


@pytest.mark.parametrize("unit", [b"[", b'"', b'\\"', b'"[', b"[]", b'{"":', b'"\\', b"]["])
def test_a_large_hostile_body_takes_little_time(unit: bytes) -> None:
    """Gone through again and again it would take hours, and the test its time limit."""
    raw = (b"[" * 100 + unit * (16 << 20))[: 16 << 20]

    assert is_refused(raw) in {True, False}
