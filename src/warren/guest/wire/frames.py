"""The wire protocol: frames of a JSON header and raw bytes, both directions, one file for both ends.

Rules for changes to this file:
1. Everything that arrives is hostile: bounded before it is kept, JSON only, rejected whole or accepted whole.
2. A frame is cheap: one pack, one dumps, no copy of the payload when sending.
3. Both ends import these names; a change that an older peer cannot read raises PROTOCOL_VERSION.

Layout: 4 bytes header length, 4 bytes payload length (big endian), header, payload.
The frames and what may be in them are listed in docs/reference/wire.md.
"""

from __future__ import annotations

import json
import struct
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from collections.abc import Iterator

PROTOCOL_VERSION = 1
MAX_HEADER = 64 << 10
MAX_PAYLOAD = 4 << 20
CHUNK = 256 << 10
"""The most a `data` frame carries."""
EVENT_COST = 256
"""The cost of an event beyond its payload, so that millions of tiny ones are bounded too."""
MAX_DISPLAY_BYTES = 16 << 20
"""The most that one execution may display."""
WINDOW = 2 << 20
"""Bytes of `data` that either side may send on a stream without further credit."""

_LENGTHS = struct.Struct(">II")

Header = dict[str, Any]
Frame = tuple[Header, bytes]


class ProtocolError(Exception):
    """The peer sent what no correct peer sends; the connection cannot be used any more."""


def encode(header: Header, payload: bytes | bytearray | memoryview = b"") -> list[bytes | bytearray | memoryview]:
    """Build the buffers of one frame, ready for `sendmsg`; the payload is not copied."""
    head = "".join(_encode_json(header, 0)).encode("utf-8", "surrogatepass")
    if len(head) > MAX_HEADER or len(payload) > MAX_PAYLOAD:
        raise ValueError(f"frame too large: header {len(head)}, payload {len(payload)} bytes")
    start = _LENGTHS.pack(len(head), len(payload)) + head
    return [start, payload] if payload else [start]


class Decoder:
    """Turns a byte stream into frames."""

    def __init__(self, max_payload: int = MAX_PAYLOAD) -> None:
        self._buffer = bytearray()
        self._max_payload = max_payload

    def feed(self, data: bytes) -> Iterator[Frame]:
        """Add `data` and yield every frame that is now complete. Raises ProtocolError."""
        buffer = self._buffer
        buffer += data
        position = 0
        try:
            while len(buffer) - position >= _LENGTHS.size:
                head_size, payload_size = _LENGTHS.unpack_from(buffer, position)
                if not 2 <= head_size <= MAX_HEADER or payload_size > self._max_payload:
                    _refuse(f"frame of {head_size} + {payload_size} bytes is over the limit")
                start = position + _LENGTHS.size
                end = start + head_size + payload_size
                if len(buffer) < end:
                    break
                with memoryview(buffer) as view:
                    head = bytes(view[start : start + head_size])
                    payload = bytes(view[start + head_size : end])
                position = end
                yield _parse_header(head), payload
        finally:
            del buffer[:position]


def _parse_header(head: bytes) -> Header:
    try:
        text = head.decode("utf-8", "surrogatepass")
        header, end = _DECODER.scan_once(text, 0)  # type: ignore[attr-defined]  # not in the stubs
        if end != len(text):
            _refuse("header is not JSON")
    except (ValueError, RecursionError, StopIteration) as error:
        raise ProtocolError("header is not JSON") from error
    if not isinstance(header, dict) or not isinstance(header.get("t"), str):
        _refuse("header is not an object with a type")
    stream_id = header.get("id", 0)
    if not isinstance(stream_id, int) or isinstance(stream_id, bool) or not 0 <= stream_id < 1 << 53:
        _refuse("stream id is not a number")
    return header


def _refuse(what: str) -> NoReturn:
    raise ProtocolError(what)


# Made once, and called without their public methods: those make a new one for every frame, or skip spaces.
_ENCODER = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False)
_DECODER = json.JSONDecoder(parse_constant=_refuse)
_encode_json = json.encoder.c_make_encoder(  # type: ignore[attr-defined]  # what `iterencode` makes each time
    None, _ENCODER.default, json.encoder.encode_basestring, None, ":", ",", False, False, True
)
