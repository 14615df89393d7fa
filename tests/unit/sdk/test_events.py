from __future__ import annotations

import base64
import itertools
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

import warren
from warren.sdk.events import EventParser, EventReader, Output, RawEvent, Started


def parse(*pieces: bytes) -> list[RawEvent]:
    parser = EventParser()
    return [event for piece in pieces for event in parser.feed(piece)]


STREAM = (
    b'id: 0\nevent: started\ndata: {"a": "\xe2\x80\xa8"}\n\n: still here\n\nid: 7\r\nevent: stdout\r\ndata: 1\r\n\r\n'
)
EVENTS = [RawEvent("started", '{"a": "\u2028"}', "0"), RawEvent("stdout", "1", "7")]


@given(st.lists(st.integers(0, len(STREAM)), max_size=8))
def test_a_stream_is_the_same_however_it_is_cut(cuts: list[int]) -> None:
    places = [0, *sorted(cuts), len(STREAM)]

    assert parse(*(STREAM[start:end] for start, end in itertools.pairwise(places))) == EVENTS


def test_half_an_event_is_none_yet() -> None:
    assert parse(b"event: stdout\ndata: 1\n") == []


def stdout(data: bytes, skipped: int = 0, seq: int = 1) -> RawEvent:
    return RawEvent("stdout", json.dumps({"data": base64.b64encode(data).decode(), "skipped": skipped}), str(seq))


def test_half_a_character_waits_for_the_other_half() -> None:
    reader = EventReader()
    read = [reader.read(stdout(piece)) for piece in (b"a\xe2\x82", b"\xac", b"\xe2")]

    assert [event.text for event in read if isinstance(event, Output)] == ["a", "€", ""]
    lost = reader.read(stdout(b"b", skipped=5, seq=9))
    assert isinstance(lost, Output)
    assert (lost.text, lost.skipped, reader.seen) == ("\ufffdb", 5, 9)


def test_a_resumed_stream_does_not_begin_again() -> None:
    reader = EventReader()
    started = RawEvent("started", '{"execution_id": "exe_1", "sandbox_id": "sbx_1"}', "0")

    assert reader.read(started) == Started(execution_id="exe_1", sandbox_id="sbx_1")
    assert reader.read(started) is None


def test_events_of_a_newer_service_are_passed_over() -> None:
    assert EventReader().read(RawEvent("of_next_year", "{}", None)) is None


def test_an_error_ends_the_stream() -> None:
    with pytest.raises(warren.SandboxLost, match="gone"):
        EventReader().read(RawEvent("error", '{"code": "sandbox_lost", "status": 502, "detail": "gone"}', None))


@pytest.mark.parametrize("event", [("stdout", "{"), ("stdout", "{}"), ("stdout", '{"data": "!", "skipped": "x"}')])
def test_what_is_no_event_is_told(event: tuple[str, str]) -> None:
    with pytest.raises(warren.NotUnderstood):
        EventReader().read(RawEvent(*event, None))
