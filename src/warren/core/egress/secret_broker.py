"""Secret broker: programs have placeholders; the proxy puts in the values, and takes them out of responses.

1. A value goes only to its hosts, over TLS, in a header. Never into a tunnel, whose content is not visible.
2. Headers and bodies of responses are searched for the value in the encodings that a benign server may echo it in:
   JSON, HTML, a URL, or base64 as in `Authorization: Basic`. The request asks for neither compression nor ranges, by
   which a program could read the value piece by piece.
3. The search looks at bytes of the server only, never at replacements: a program chooses those, and could end them as
   the value begins. Which bytes are replaced already is remembered by position.
4. A server that encodes a value otherwise (reversed, encrypted) can reveal it; it is trusted with the value.
"""

from __future__ import annotations

import base64
import binascii
import functools
import html
import json
import re
from typing import TYPE_CHECKING
from urllib.parse import quote

from anyio import to_thread

if TYPE_CHECKING:
    import ssl
    from collections.abc import Sequence

    from warren.core.egress.message import Headers, Target
    from warren.core.egress.session import Surroundings
    from warren.domain.egress import Brokered

_BASIC = b"basic "
_TLS_PORT = 443
_PLAIN_PORT = 80
_MOST = 64 << 10
"""Bytes of values in one request: placeholders are short, values need not be."""
_MOST_ENCODED = 4
_ASKS_FOR_A_PART = frozenset({b"range", b"if-range", b"accept-charset"})
_SHORTEST = 8
"""Bytes of an encoded value; a shorter one would match unrelated text."""
_LONG = 2048
"""For longer values, the tail of each piece is held back without a search for partial matches, which would be slow."""
_ESCAPED = re.compile("%[0-9A-F]{2}")
_URL_SAFE = bytes.maketrans(b"+/", b"-_")


class TooMuch(ValueError):
    """The request would be too long with the values in it."""


class Broker:
    """The secrets for one host; without any, nothing is changed."""

    def __init__(self, secrets: Sequence[Brokered]) -> None:
        self.names = tuple(sorted(secret.name for secret in secrets))
        # WHY longest first: one placeholder may be a part of another.
        ordered = sorted(secrets, key=lambda secret: -len(secret.value))
        self._pairs = [(secret.placeholder.encode(), secret.value.encode()) for secret in ordered]
        self._sent: list[tuple[bytes, bytes]] = []
        """Encoded values that were sent, with the text that the program wrote in their place."""
        self._room = _MOST
        self._words: list[tuple[bytes, bytes]] = []

    def __bool__(self) -> bool:
        return bool(self._pairs)

    def port(self, asked: int) -> int:
        """Return the port to connect to: plain HTTP inside is TLS outside."""
        return _TLS_PORT if self and asked == _PLAIN_PORT else asked

    async def trust(self, around: Surroundings) -> ssl.SSLContext:
        """Return the TLS context: the certificates of this host and of `egress.ca_file`."""
        if around.trust is None:
            around.trust = await to_thread.run_sync(_build_trust, around.ca_file)
        return around.trust

    def fill(self, headers: Headers) -> Headers:
        """Replace placeholders with values. Raises TooMuch."""
        if not self:
            return headers
        self._sent, self._room, self._words = [], _MOST, []
        kept = [(name, value) for name, value in headers if name.lower() != b"accept-encoding"]
        filled = [(name, self._fill(value)) for name, value in kept]
        if self._room < _MOST:
            filled = [(name, value) for name, value in filled if name.lower() not in _ASKS_FOR_A_PART]
        return [*filled, (b"Accept-Encoding", b"identity")]

    def clean(self, text: bytes) -> bytes:
        """Replace values with placeholders."""
        cleaner = self.cleaner()
        return cleaner.feed(text) + cleaner.end() if cleaner else text

    def clean_headers(self, headers: Headers, target: Target) -> Headers:
        """Replace values with placeholders, and rewrite https links to the host so that they come back to the proxy."""
        if not self:
            return headers
        secure = b"https://" + target.host.encode()
        cleaned: Headers = []
        for name, value in headers:
            clean = self.clean(value)
            if name.lower() == b"location" and clean.startswith((secure + b"/", secure + b":443/")):
                clean = b"http://" + target.authority + b"/" + clean.removeprefix(b"https://").partition(b"/")[2]
            # The replacement may have another length.
            if name.lower() != b"content-length":
                cleaned.append((name, clean))
        return cleaned

    def cleaner(self) -> Cleaner | None:
        """Return a cleaner for a body, whatever its declared encoding; None without secrets."""
        if not self:
            return None
        if not self._words:
            self._words = [(way, shown) for shown, value in self._pairs if value for way in spell(value)]
            self._words += [(way, written) for filled, written in self._sent for way in _write(filled)]
        return Cleaner(self._words)

    def _fill(self, value: bytes) -> bytes:
        if value[: len(_BASIC)].lower() == _BASIC:
            try:
                said = base64.b64decode(value[len(_BASIC) :].strip(), validate=True)
            except (binascii.Error, ValueError):
                said = b""
            if any(placeholder in said for placeholder, _ in self._pairs):
                filled = base64.b64encode(self._replace(said))
                # A server that echoes the header returns what the program sent.
                self._sent.append((filled, value[len(_BASIC) :].strip()))
                if len(self._sent) > _MOST_ENCODED:
                    raise TooMuch(f"it has secrets in more than {_MOST_ENCODED} headers that are encoded")
                return value[: len(_BASIC)] + filled
        return self._replace(value)

    def _replace(self, text: bytes) -> bytes:
        for placeholder, secret in self._pairs:
            self._room -= text.count(placeholder) * len(secret)
            if self._room < 0:
                raise TooMuch(f"there would be more than {_MOST} bytes of secrets in it")
            text = text.replace(placeholder, secret)
        return text


def _build_trust(ca_file: str) -> ssl.SSLContext:
    import ssl

    context = ssl.create_default_context()
    if ca_file:
        context.load_verify_locations(ca_file)
    context.set_alpn_protocols(["http/1.1"])
    return context


@functools.lru_cache(maxsize=512)
def spell(value: bytes) -> tuple[bytes, ...]:
    """Return the encodings of a value, the plain one first; of a long value, only that."""
    if len(value) > _LONG:
        return (value,)
    found = [*_write(value), *(way for each in _encode(value) for way in _write(each))]
    return (value, *(way for way in dict.fromkeys(found) if way != value and len(way) >= _SHORTEST))


def _write(value: bytes) -> list[bytes]:
    """Return a value as text is written in JSON, in a page and in a URL; a long one only as it is."""
    if len(value) > _LONG:
        return [value]
    text = value.decode("latin-1")
    in_json = json.dumps(text)[1:-1]
    in_scripts = in_json.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")
    in_page = html.escape(text, quote=False)
    in_address = [quote(text, safe=""), quote(text), quote(text, safe="!'()*;,/?:@&=+$#")]
    ways = [
        *(text, in_json, in_json.replace("/", "\\/"), in_scripts),
        *(in_page, html.escape(text), in_page.replace('"', "&#34;").replace("'", "&#39;")),
        *(in_page.replace('"', "&quot;"), in_page.replace('"', "&quot;").replace("'", "&#39;")),
        *in_address,
        *(way.replace("%20", "+") for way in in_address),
        *(_ESCAPED.sub(lambda found: found[0].lower(), way) for way in in_address),
    ]
    return [way.encode("latin-1") for way in dict.fromkeys(ways)]


def _encode(value: bytes) -> list[bytes]:
    """Return the base64 of a value at each alignment, without the characters that depend on its neighbours."""
    found = []
    for before in range(3):
        first, end = -(-before * 8 // 6), (before + len(value)) * 8 // 6
        found.append(base64.b64encode(bytes(before) + value)[first:end])
    return [*found, *(each.translate(_URL_SAFE) for each in found)]


class Cleaner:
    """Replaces words in a stream of pieces; a word may span several.

    Words may overlap in the text: every byte of each is taken out, and the first of them says what is there instead.
    """

    def __init__(self, pairs: list[tuple[bytes, bytes]]) -> None:
        self._pairs = dict(pairs)
        self._rest = b""
        """The end of the text, from where a word may begin that is not complete yet. As the server wrote it."""
        self._replaced: dict[bytes, int] = {}
        """The words that began before `_rest`: how many bytes of it they take."""

    def feed(self, data: bytes) -> bytes:
        """Take a piece, and return the bytes that can be released."""
        text = self._rest + data
        return self._release(text, len(text) - self._count_unsure(text))

    def end(self) -> bytes:
        """Return the remaining bytes."""
        return self._release(self._rest, len(self._rest))

    def _release(self, text: bytes, sure: int) -> bytes:
        """Replace the words that begin before `sure`, and keep the text from there on."""
        at, pieces = max(self._replaced.values(), default=0), list[bytes]()
        replaced = {word: end - sure for word, end in self._replaced.items() if end > sure}
        for start, end, word in self._find(text, sure):
            if start >= at:
                pieces += [text[at:start], self._pairs[word]]
            at = max(at, end)
            if end > sure:
                replaced[word] = end - sure
        self._rest, self._replaced = text[sure:], replaced
        return b"".join((*pieces, text[at:sure]))

    def _find(self, text: bytes, sure: int) -> list[tuple[int, int, bytes]]:
        """Return start, end and word of those that begin before `sure`; of two at the same place, the longer first."""
        found = []
        for word in self._pairs:
            at = text.find(word, self._replaced.get(word, 0))
            while 0 <= at < sure:
                found.append((at, at + len(word), word))
                at = text.find(word, at + len(word))
        return sorted(found, key=lambda each: (each[0], -each[1]))

    def _count_unsure(self, text: bytes) -> int:
        """Return the smallest number of bytes at the end that may begin a word, so that no other byte is delayed."""
        most = 0
        for word in self._pairs:
            at = max(0, len(text) - len(word) + 1)
            if len(word) > _LONG:
                most = max(most, len(text) - at)
                continue
            while (at := text.find(word[:1], at)) >= 0 and not word.startswith(text[at:]):
                at += 1
            if at >= 0:
                most = max(most, len(text) - at)
        return most
