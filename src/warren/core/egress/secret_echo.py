"""Finds a secret in responses, in the encodings that servers use. Pure: bytes in, bytes out.

A benign server may echo a request: in JSON, HTML, a URL, or base64 as in `Authorization: Basic`. These encodings are
searched for. Nothing helps against a malicious server: it has the value.
"""

from __future__ import annotations

import base64
import functools
import html
import json
import re
from urllib.parse import quote

_SHORTEST = 8
"""Bytes of an encoded value; a shorter one would match unrelated text."""
_LONG = 2048
"""For longer values, the tail of each piece is held back without a search for partial matches, which would be slow."""
_ESCAPED = re.compile("%[0-9A-F]{2}")
_URL_SAFE = bytes.maketrans(b"+/", b"-_")


@functools.lru_cache(maxsize=512)
def spell(value: bytes) -> tuple[bytes, ...]:
    """Return the encodings of a value, the plain one first; of a long value, only that."""
    if len(value) > _LONG:
        return (value,)
    text = value.decode("latin-1")
    in_json = json.dumps(text)[1:-1]
    in_scripts = in_json.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")
    in_page = html.escape(text, quote=False)
    in_address = [quote(text, safe=""), quote(text), quote(text, safe="!'()*;,/?:@&=+$#")]
    ways = [
        *(in_json, in_json.replace("/", "\\/"), in_scripts),
        *(in_page, html.escape(text), in_page.replace('"', "&#34;").replace("'", "&#39;")),
        *(in_page.replace('"', "&quot;"), in_page.replace('"', "&quot;").replace("'", "&#39;")),
        *in_address,
        *(way.replace("%20", "+") for way in in_address),
        *(_ESCAPED.sub(lambda found: found[0].lower(), way) for way in in_address),
    ]
    found = [*(way.encode("latin-1") for way in ways), *_encode(value)]
    return (value, *(way for way in dict.fromkeys(found) if way != value and len(way) >= _SHORTEST))


def _encode(value: bytes) -> list[bytes]:
    """Return the base64 of a value at each alignment, without the characters that depend on its neighbours."""
    found = []
    for before in range(3):
        first, end = -(-before * 8 // 6), (before + len(value)) * 8 // 6
        found.append(base64.b64encode(bytes(before) + value)[first:end])
    return [*found, *(each.translate(_URL_SAFE) for each in found)]


class Cleaner:
    """Replaces words in a stream of pieces; a word may span several."""

    def __init__(self, pairs: list[tuple[bytes, bytes]]) -> None:
        # WHY longest first: one word may be a part of another, and the rest of that would remain.
        self._pairs = sorted(pairs, key=lambda pair: -len(pair[0]))
        self._others = tuple({other for _, other in pairs})
        self._rest = b""

    def feed(self, data: bytes) -> bytes:
        """Take a piece, and return the bytes that can be released."""
        text = self.clean(self._rest + data)
        sure = len(text) - self._count_unsure(text)
        self._rest = text[sure:]
        return text[:sure]

    def end(self) -> bytes:
        """Return the remaining bytes."""
        rest, self._rest = self._rest, b""
        return rest

    def clean(self, text: bytes) -> bytes:
        """Replace the words in a complete text."""
        for word, other in self._pairs:
            text = text.replace(word, other)
        return text

    def _count_unsure(self, text: bytes) -> int:
        """Return the smallest number of bytes at the end that may begin a word, so that no other byte is delayed."""
        if self._others and text.endswith(self._others):
            return 0  # A complete word at the end is replaced, even if another word may begin with its last byte.
        most = 0
        for word, _ in self._pairs:
            at = max(0, len(text) - len(word) + 1)
            if len(word) > _LONG:
                most = max(most, len(text) - at)
                continue
            while (at := text.find(word[:1], at)) >= 0 and not word.startswith(text[at:]):
                at += 1
            if at >= 0:
                most = max(most, len(text) - at)
        return most
