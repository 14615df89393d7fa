"""What a program says first on a TLS connection: to whom it speaks. Pure: bytes in, values out, all of them hostile.

1. Whoever decides by the name in a ClientHello must see what the server will see: anything odd is `NotTls`.
2. A server may ask for a second ClientHello (`asks_again`), and that may hold another name: it is read as the first.
"""

from __future__ import annotations

from dataclasses import dataclass

MAX_HELLO = 16 << 10
"""Bytes of a ClientHello, records and all; those of real programs have 2 KiB."""
SERVER_START = 43
"""Bytes of a server's answer that `asks_again` looks at."""
ACCESS_DENIED = bytes((21, 3, 1, 0, 2, 2, 49))
"""A fatal alert, which programs show as `access denied`."""

_HANDSHAKE = 22
_CLIENT_HELLO = 1
_SERVER_HELLO = 2
_MAX_RECORD = 1 << 14
_SERVER_NAME = 0
# Of the drafts, and of the standard: they hide the name that counts behind another.
_ENCRYPTED = frozenset({0xFE0D, 0xFE0C, 0xFE0B, 0xFE0A, 0xFE09, 0xFE08, 0xFF02, 0xFF03, 0xFFCE})
_RETRY = bytes.fromhex("cf21ad74e59a6111be1d8c021e65b891c2a211167abb8c5e079e09e2c8a8339c")
"""Where another answer of a server has random bytes, in RFC 8446."""


class NotTls(ValueError):
    """This is no ClientHello that every server would read alike."""


@dataclass(frozen=True, slots=True)
class Hello:
    """What there is to know of a ClientHello."""

    name: str | None
    """The server's name, in lower case; None where it is not said."""
    is_encrypted: bool
    """Whether it has another one inside that only the server can read, or pretends to."""


def may_be_tls(start: bytes) -> bool:
    """Whether a connection that begins so may be TLS; True for nothing at all."""
    return start[:1] in {b"", b"\x16"} and start[1:2] in {b"", b"\x03"}


def parse_hello(data: bytes) -> Hello | None:
    """Read a ClientHello off the beginning of a connection; None when more bytes are needed. Raises NotTls."""
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
    """Return how many of these bytes are the ClientHello that `parse_hello` found."""
    collected = _collect(data)
    return len(data) if collected is None else collected[1]


def asks_again(start: bytes) -> bool:
    """Whether a server's answer asks for another ClientHello; wants its first `SERVER_START` bytes."""
    return start[:1] == bytes((_HANDSHAKE,)) and start[5:6] == bytes((_SERVER_HELLO,)) and start[11:43] == _RETRY


def skip_change(data: bytes) -> bytes:
    """Take off the record that says nothing, which a client may send before its second ClientHello."""
    return data[6:] if data[:1] == b"\x14" and data[3:6] == b"\x00\x01\x01" else data


def _collect(data: bytes) -> tuple[bytes, int] | None:
    """Put together the handshake message that may lie in several records, and say where they end; None without it."""
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
    """Takes a message apart from its beginning."""

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
        raise NotTls("a name that is none, or two")
    return name.decode("ascii").lower().rstrip(".")
