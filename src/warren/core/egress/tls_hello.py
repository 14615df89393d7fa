"""TLS ClientHello parser: which server a program talks to. Pure: bytes in, values out, all input hostile.

1. A decision by the name in a ClientHello must see what the server sees: any irregularity is `NotTls`.
2. A server may request a second ClientHello (`asks_again`) with another name: it is checked like the first.
"""

from __future__ import annotations

from dataclasses import dataclass

MAX_HELLO = 16 << 10
"""Bytes of a ClientHello with its record headers; real ones have 2 KiB."""
SERVER_START = 43
"""Bytes of a server's reply that `asks_again` needs."""
ACCESS_DENIED = bytes((21, 3, 1, 0, 2, 2, 49))
"""A fatal alert that clients show as `access denied`."""

_HANDSHAKE = 22
_CLIENT_HELLO = 1
_SERVER_HELLO = 2
_MAX_RECORD = 1 << 14
_SERVER_NAME = 0
# Encrypted ClientHello, of the drafts and of the standard: it hides the real name behind another.
_ENCRYPTED = frozenset({0xFE0D, 0xFE0C, 0xFE0B, 0xFE0A, 0xFE09, 0xFE08, 0xFF02, 0xFF03, 0xFFCE})
_RETRY = bytes.fromhex("cf21ad74e59a6111be1d8c021e65b891c2a211167abb8c5e079e09e2c8a8339c")
"""The fixed random of a HelloRetryRequest, RFC 8446."""


class NotTls(ValueError):
    """Not a ClientHello that every server parses alike."""


@dataclass(frozen=True, slots=True)
class Hello:
    """The fields of a ClientHello that matter here."""

    name: str | None
    """The server name in lower case; None without one."""
    is_encrypted: bool
    """Whether it carries an encrypted ClientHello, or pretends to."""


def may_be_tls(start: bytes) -> bool:
    """Whether a connection that begins so may be TLS; True for no bytes."""
    return start[:1] in {b"", b"\x16"} and start[1:2] in {b"", b"\x03"}


def parse_hello(data: bytes) -> Hello | None:
    """Parse the ClientHello at the beginning of a connection; None when more bytes are needed. Raises NotTls."""
    collected = _collect(data)
    if collected is None:
        return None
    fields = _Fields(collected[0])
    fields.take(2)
    fields.take(32)
    fields.take(fields.number(1))
    fields.take(fields.number(2))
    fields.take(fields.number(1))
    if fields.is_empty:
        return Hello(None, is_encrypted=False)
    extensions = _Fields(fields.take(fields.number(2)))
    if not fields.is_empty:
        raise NotTls("a ClientHello with something behind it")
    return _read_extensions(extensions)


def hello_size(data: bytes) -> int:
    """Return the size of the ClientHello at the beginning of these bytes."""
    collected = _collect(data)
    return len(data) if collected is None else collected[1]


def asks_again(start: bytes) -> bool:
    """Whether a server's reply is a HelloRetryRequest; needs its first `SERVER_START` bytes."""
    return start[:1] == bytes((_HANDSHAKE,)) and start[5:6] == bytes((_SERVER_HELLO,)) and start[11:43] == _RETRY


def skip_change(data: bytes) -> bytes:
    """Strip the ChangeCipherSpec record that a client may send before its second ClientHello."""
    return data[6:] if data[:1] == b"\x14" and data[3:6] == b"\x00\x01\x01" else data


def _collect(data: bytes) -> tuple[bytes, int] | None:
    """Join the records of the handshake message, and return it with their size; None when more bytes are needed."""
    message, position = bytearray(), 0
    while len(message) < 4 or len(message) < 4 + int.from_bytes(message[1:4]):
        if position > MAX_HELLO:
            raise NotTls("a ClientHello that is too long")
        if not may_be_tls(data[position : position + 2]):
            raise NotTls("no TLS")
        if len(data) < position + 5:
            return None
        size = int.from_bytes(data[position + 3 : position + 5])
        if not 0 < size <= _MAX_RECORD:
            raise NotTls("a record of an impossible size")
        message += data[position + 5 : position + 5 + size]
        if message and message[0] != _CLIENT_HELLO:
            raise NotTls("a handshake that begins with something else")
        if len(data) < position + 5 + size:
            return None
        position += 5 + size
    end = 4 + int.from_bytes(message[1:4])
    if len(message) != end:
        raise NotTls("a ClientHello with something behind it")
    return bytes(message[4:]), position


class _Fields:
    """Reads the fields of a message in order."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    @property
    def is_empty(self) -> bool:
        return self._at == len(self._data)

    def take(self, size: int) -> bytes:
        piece = self._data[self._at : self._at + size]
        if len(piece) != size:
            raise NotTls("a field that is longer than what it is in")
        self._at += size
        return piece

    def number(self, size: int) -> int:
        return int.from_bytes(self.take(size))


def _read_extensions(extensions: _Fields) -> Hello:
    name, seen = None, set()
    while not extensions.is_empty:
        kind = extensions.number(2)
        content = extensions.take(extensions.number(2))
        if kind in seen:
            raise NotTls("an extension twice")
        seen.add(kind)
        if kind == _SERVER_NAME:
            name = _read_name(content)
    return Hello(name, is_encrypted=bool(seen & _ENCRYPTED))


def _read_name(content: bytes) -> str:
    names = _Fields(content)
    entry = _Fields(names.take(names.number(2)))
    if not names.is_empty or entry.number(1) != 0:
        raise NotTls("names of a kind that there is not")
    name = entry.take(entry.number(2))
    if not entry.is_empty or not name or not name.isascii() or not name.decode("ascii").isprintable():
        raise NotTls("an invalid name, or two")
    return name.decode("ascii").lower().rstrip(".")
