"""Finding a secret in what a server says back, in each of the ways that servers write it. Pure: bytes in, bytes out.

A server that means no harm may still repeat what it was sent: in JSON, in a page, in an address, or as it was encoded
for `Authorization: Basic`. Those are looked for. Against one that means harm nothing helps: it has the value.
"""

from __future__ import annotations

import base64
import functools
import html
import json
import re
from urllib.parse import quote

_SHORTEST = 8
"""Of an encoded value: what is shorter would be found where it does not stand."""
_LONG = 2048
"""Of values longer than that, the end of what arrived is held back without a closer look, which would take long."""
_ESCAPED = re.compile("%[0-9A-F]{2}")
_URL_SAFE = bytes.maketrans(b"+/", b"-_")


@functools.lru_cache(maxsize=512)
def spell(value: bytes) -> tuple[bytes, ...]:
    """Return a value as servers may write it, the value itself first; a long one only as it is."""
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
    """Return what base64 makes of a value wherever in a text it stands, without what depends on its neighbours."""
    found = []
    for before in range(3):
        first, end = -(-before * 8 // 6), (before + len(value)) * 8 // 6
        found.append(base64.b64encode(bytes(before) + value)[first:end])
    return [*found, *(each.translate(_URL_SAFE) for each in found)]


class Cleaner:
    """Replaces words in a body that comes in pieces; a word may lie across them."""

    def __init__(self, pairs: list[tuple[bytes, bytes]]) -> None:
        # WHY the longest first: another may be a part of it, and would leave the rest.
        self._pairs = sorted(pairs, key=lambda pair: -len(pair[0]))
        self._others = tuple({other for _, other in pairs})
        self._rest = b""

    def feed(self, data: bytes) -> bytes:
        """Take in a piece and return what is sure by now."""
        text = self.clean(self._rest + data)
        sure = len(text) - self._count_unsure(text)
        self._rest = text[sure:]
        return text[:sure]

    def end(self) -> bytes:
        """Return the rest."""
        rest, self._rest = self._rest, b""
        return rest

    def clean(self, text: bytes) -> bytes:
        """Replace the words in something that is whole."""
        for word, other in self._pairs:
            text = text.replace(word, other)
        return text

    def _count_unsure(self, text: bytes) -> int:
        """Return how many bytes at the end may be the beginning of a word: no more, so that whoever waits gets all."""
        if self._others and text.endswith(self._others):
            return 0  # It is ours to the last letter, whichever word may begin with that one.
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
