"""What an agent says of an execution, as random JSON: it is read, or it is a ProtocolError, and nothing else."""

from __future__ import annotations

import contextlib
import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from warren.core.agent.events import _FIELDS, Shown, parse_event
from warren.guest.wire.frames import ProtocolError

_JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=10,
)
_WORDS = st.sampled_from(["stdout", "stderr", "display", "result"])
_BODY = st.dictionaries(st.sampled_from([*_FIELDS, "exec", "duration_ms", "cpu_ms", "id", "stdout"]), _JSON)
_DISPLAY = st.fixed_dictionaries({}, optional={"data": _JSON, "metadata": _JSON})


@given(st.dictionaries(st.sampled_from(["seq", "display", "displays", "parts", "skipped", "dropped"]), _JSON), _JSON)
def test_an_event_is_read_or_refused(header: dict[str, Any], content: Any) -> None:
    for kind in (*("stdout", "stderr", "display", "result"), content):
        with contextlib.suppress(ProtocolError):
            event = parse_event({"seq": 1, **header, "kind": kind}, json.dumps(content).encode(), "exe_1", Shown())
            assert event.kind == kind


@given(_BODY, st.lists(st.tuples(_DISPLAY, _WORDS | _JSON), max_size=3), st.booleans())
def test_a_result_is_read_or_refused(body: dict[str, Any], displays: list[tuple[Any, Any]], is_right: bool) -> None:
    if is_right:
        body = {**body, "exec": "exe_1", "duration_ms": 1.0, "cpu_ms": 0}
    parts = [json.dumps(one).encode() for one in (body, *(shown for shown, _ in displays))]
    sizes = [len(parts[0]), 0, 0, *map(len, parts[1:])]
    header = {"t": "ok", "seq": 1, "kind": "result", "parts": sizes, "displays": [kind for _, kind in displays]}
    with contextlib.suppress(ProtocolError):
        result = parse_event(header, b"".join(parts), "exe_1", Shown()).result
        assert result is not None
        assert result.id == body["exec"]
        assert len(result.displays) == len(displays)
