"""Rich displays: what an object offers, what fits, and what breaks."""

from __future__ import annotations

import base64
import json
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from hypothesis import given
from hypothesis import strategies as st

from warren.guest.interpreter.display import MAX_BYTES, TOTAL_BYTES, Screen, build_bundle

if TYPE_CHECKING:
    from collections.abc import Mapping

    from unit.guest.forkserver_harness import Kernel

PICTURE = b"\x89PNG\r\n\x1a\n"


def shown(*bundles: dict[str, Any], metadata: Mapping[str, Any] | None = None) -> list[dict[str, Any]]:
    sent: list[bytes] = []
    screen = Screen()
    screen.open(lambda _kind, payload, _is_last: sent.append(payload))
    for bundle in bundles:
        screen.show("display", bundle, metadata)
    assert all(len(payload) <= MAX_BYTES for payload in sent)
    return [json.loads(payload) for payload in sent]


def test_every_form_that_an_object_offers_is_shown(kernel: Kernel) -> None:
    kernel.run(
        "class Rich:\n"
        "    def __repr__(self): return 'rich'\n"
        "    def _repr_html_(self): return '<b>rich</b>'\n"
        "    def _repr_png_(self): return b'\\x89PNG\\r\\n\\x1a\\n'\n"
        "    def _repr_mimebundle_(self, include=None, exclude=None): return {'application/x-rich': {'n': 1}}\n"
    )
    [display] = kernel.run("display(Rich())").displays

    assert display["kind"] == "display"
    assert display["data"]["text/plain"] == "rich"
    assert display["data"]["text/html"] == "<b>rich</b>"
    assert base64.b64decode(display["data"]["image/png"]) == PICTURE
    assert json.loads(display["data"]["application/x-rich"]) == {"n": 1}


def test_displays_and_output_come_in_the_order_they_were_made(kernel: Kernel) -> None:
    ran = kernel.run("display('a')\ndisplay('b', 'c')\n'd'")

    assert [(display["kind"], text) for display, text in zip(ran.displays, ran.texts, strict=True)] == [
        ("display", "'a'"),
        ("display", "'b'"),
        ("display", "'c'"),
        ("result", "'d'"),
    ]


def test_a_raw_bundle_is_shown_as_it_is(kernel: Kernel) -> None:
    [display] = kernel.run("display({'text/markdown': '# x'}, raw=True)").displays

    assert display["data"] == {"text/markdown": "# x"}


def test_an_object_whose_repr_fails_does_not_break_the_cell(kernel: Kernel) -> None:
    kernel.run("class Bad:\n    def __repr__(self): raise ValueError('no repr')")
    ran = kernel.run("Bad()")

    assert ran.status == "ok"
    assert "ValueError: no repr" in ran.stderr


def test_a_class_is_not_asked_for_the_forms_of_its_instances(kernel: Kernel) -> None:
    ran = kernel.run("class Rich:\n    def _repr_html_(self): return 'x'\nRich")

    assert list(ran.displays[0]["data"]) == ["text/plain"]
    assert ran.stderr == ""


def test_an_object_that_answers_to_every_name_shows_its_text_only(kernel: Kernel) -> None:
    ran = kernel.run("from unittest.mock import MagicMock\nMagicMock(name='m')")

    assert list(ran.displays[0]["data"]) == ["text/plain"]


def test_a_form_that_is_too_large_is_left_out_with_a_note() -> None:
    [display] = shown({"text/plain": "small", "text/html": "x" * (5 << 20)})

    assert list(display["data"]) == ["text/plain"]
    assert display["data"]["text/plain"].startswith("small\n[left out, over 4 MiB: text/html")


def test_a_text_that_is_too_large_is_replaced_by_a_note() -> None:
    [display] = shown({"text/plain": "\x00" * (3 << 20)})

    assert display["data"]["text/plain"].startswith("[left out")


def test_the_displays_of_one_cell_are_bounded_together() -> None:
    displays = shown(*({"text/plain": "x" * (3 << 20)} for _ in range(10)))

    assert sum(len(display["data"]["text/plain"]) for display in displays) <= TOTAL_BYTES
    assert any("dropped" in display["data"]["text/plain"] for display in displays)


def test_nothing_is_sent_when_no_cell_runs() -> None:
    Screen().show("display", {"text/plain": "x"})


@given(
    st.dictionaries(
        st.text(),
        st.none() | st.text() | st.binary() | st.floats() | st.dictionaries(st.text(), st.floats(), max_size=2),
        max_size=4,
    )
)
def test_whatever_is_shown_arrives_as_text_by_type(bundle: dict[str, Any]) -> None:
    [display] = shown(bundle, metadata={"odd": float("nan"), "other": object()})

    assert all(isinstance(text, str) for text in display["data"].values())
    assert isinstance(display["metadata"], dict)


def nested(levels: int) -> dict[str, Any]:
    value: dict[str, Any] = {}
    for _ in range(levels):
        value = {"in": value}
    return value


def test_metadata_above_its_bounds_is_left_out() -> None:
    unreadable: list[dict[str, Any]] = [nested(1000), nested(100_000), {"many": [[]] * 100_000}]
    for metadata in unreadable:
        assert shown({"text/plain": "x"}, metadata=metadata) == [{"data": {"text/plain": "x"}, "metadata": {}}]
    kept = {"deep": nested(20), "many": [1] * 5000}
    assert shown({"text/plain": "x"}, metadata=kept)[0]["metadata"] == kept


def test_metadata_of_any_mapping_is_shown() -> None:
    kept = MappingProxyType({"width": 5})

    assert shown({"text/plain": "x"}, metadata=kept)[0]["metadata"] == {"width": 5}


def test_a_program_that_shows_deep_metadata_keeps_its_kernel(kernel: Kernel) -> None:
    code = "x = []\nfor _ in range(970): x = [x]\ndisplay({'text/plain': 'on'}, raw=True, metadata={'x': x})"
    told = kernel.run(code)

    assert (told.status, [one["data"]["text/plain"] for one in told.displays]) == ("ok", ["on"])


def test_a_long_repr_is_cut_in_the_middle() -> None:
    data, _ = build_bundle("x" * (1 << 20))

    assert len(data["text/plain"]) < 300 << 10
    assert "characters left out" in data["text/plain"]
