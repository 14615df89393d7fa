"""The framing: whatever is sent arrives, however it is cut; whatever is garbage is a ProtocolError and nothing else."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warren.guest.wire.frames import MAX_HEADER, MAX_PAYLOAD, Decoder, Header, ProtocolError, encode

plain = st.recursive(
    st.none() | st.booleans() | st.integers(-(1 << 53), 1 << 53) | st.text(max_size=30),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=10), inner, max_size=4),
    max_leaves=12,
)
headers = st.builds(
    lambda kind, number, rest: {**rest, "t": kind, "id": number},
    st.text(max_size=12),
    st.integers(0, (1 << 53) - 1),
    st.dictionaries(st.text(max_size=10), plain, max_size=5),
)
frames = st.lists(st.tuples(headers, st.binary(max_size=2000)), max_size=6)


def joined(some: list[tuple[Header, bytes]]) -> bytes:
    return b"".join(bytes(part) for header, payload in some for part in encode(header, payload))


def cut(blob: bytes, places: list[int]) -> list[bytes]:
    ends = sorted({place % (len(blob) + 1) for place in places} | {len(blob)})
    starts = [0, *ends]
    return [blob[start:end] for start, end in zip(starts, ends, strict=False)]


@given(frames, st.lists(st.integers(min_value=0), max_size=20))
def test_frames_arrive_as_they_were_sent_however_they_are_cut(
    some: list[tuple[Header, bytes]], places: list[int]
) -> None:
    decoder = Decoder()

    arrived = [frame for piece in cut(joined(some), places) for frame in decoder.feed(piece)]

    assert arrived == some


@given(frames)
def test_frames_arrive_one_byte_at_a_time(some: list[tuple[Header, bytes]]) -> None:
    decoder = Decoder()

    arrived = [frame for byte in joined(some) for frame in decoder.feed(bytes([byte]))]

    assert arrived == some


@given(st.binary(max_size=500), st.lists(st.integers(min_value=0), max_size=5))
def test_garbage_is_a_protocol_error_or_waits_for_more(garbage: bytes, places: list[int]) -> None:
    decoder = Decoder()
    try:
        for piece in cut(garbage, places):
            for header, payload in decoder.feed(piece):
                assert isinstance(header["t"], str)
                assert isinstance(payload, bytes)
    except ProtocolError:
        pass


@given(st.binary(min_size=2, max_size=300), st.binary(max_size=50))
def test_a_frame_with_any_header_bytes_is_parsed_or_refused(head: bytes, payload: bytes) -> None:
    blob = struct.pack(">II", len(head), len(payload)) + head + payload
    try:
        arrived = list(Decoder().feed(blob))
    except ProtocolError:
        return
    assert [frame[1] for frame in arrived] == [payload]


@given(plain)
def test_a_header_that_is_no_object_with_a_type_is_refused(value: Any) -> None:
    if isinstance(value, dict) and isinstance(value.get("t"), str):
        return
    try:
        parts = encode(value)
    except ValueError:
        return

    with pytest.raises(ProtocolError):
        list(Decoder().feed(b"".join(bytes(part) for part in parts)))


@given(st.integers(0, 1 << 32).map(lambda n: n % (1 << 32)), st.integers(0, 1 << 32).map(lambda n: n % (1 << 32)))
def test_lengths_over_the_limit_are_refused_before_anything_is_kept(head: int, payload: int) -> None:
    blob = struct.pack(">II", head, payload)
    if 2 <= head <= MAX_HEADER and payload <= MAX_PAYLOAD:
        assert list(Decoder().feed(blob)) == []
    else:
        with pytest.raises(ProtocolError):
            list(Decoder().feed(blob))


@pytest.mark.parametrize(
    "head",
    [
        b'{"t":"x","id":NaN}',
        b'{"t":"x","id":Infinity}',
        b'{"t":"x","id":true}',
        b'{"t":"x","id":-1}',
        b'{"t":"x","id":1e3}',
        b'{"t":5}',
        b"[" * 60_000,
        b'{"a":' * 10_000,
        b'{"t":"x","n":' + b"9" * 5000 + b"}",
        b"\xff\xfe{",
    ],
)
def test_a_nasty_header_is_refused(head: bytes) -> None:
    with pytest.raises(ProtocolError):
        list(Decoder().feed(struct.pack(">II", len(head), 0) + head))


def test_what_is_too_large_to_send_is_refused_at_once() -> None:
    with pytest.raises(ValueError, match="too large"):
        encode({"t": "x", "v": "y" * MAX_HEADER})
    with pytest.raises(ValueError, match="too large"):
        encode({"t": "x"}, bytes(MAX_PAYLOAD + 1))
