"""A deck: one HTML page and its assets, and the response to each address that the browser requests.

Pure: no I/O. An address that is neither in the deck nor in the mirror does not exist.
"""

from __future__ import annotations

import mimetypes
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

if TYPE_CHECKING:
    from collections.abc import Mapping

    from warren.render.browser.mirror import Mirror

HOST = "deck.invalid"
URL = f"http://{HOST}/"
POLICY = (
    "default-src 'self' data: blob: http: https: 'unsafe-inline' 'unsafe-eval'; "
    "connect-src 'self' data: blob: http: https:; frame-src 'self' data: blob:; worker-src 'none'; object-src 'none'; "
    "form-action 'none'; manifest-src 'none'; webrtc 'block'"
)
"""WHY all of the web is allowed: interception decides what of it exists. What it never sees is forbidden here."""

_TYPES = {
    ".avif": "image/avif",
    ".js": "text/javascript",
    ".mjs": "text/javascript",
    ".otf": "font/otf",
    ".svg": "image/svg+xml",
    ".ttf": "font/ttf",
    ".webp": "image/webp",
    ".woff": "font/woff",
    ".woff2": "font/woff2",
}
_TAG = re.compile(rb"<(?:script|link)\b[^>]{0,4096}>", re.IGNORECASE)
_INTEGRITY = re.compile(rb"""\sintegrity\s*=\s*(?:"[^"]*"|'[^']*'|[^\s>]+)""", re.IGNORECASE)


class RenderFailed(Exception):
    """The deck cannot be rendered: a code for programs, which `job.py` lists, and one sentence for people."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True, slots=True)
class Answer:
    """One response to the browser."""

    body: bytes = field(repr=False)
    content_type: str
    is_page: bool = False


@dataclass(frozen=True, slots=True)
class Deck:
    """The files of one job."""

    html: bytes = field(repr=False)
    assets: Mapping[str, bytes] = field(default_factory=dict, repr=False)

    def answer(self, url: str, *, is_frame: bool, is_main: bool, mirror: Mirror | None = None) -> Answer | None:
        """Return the content of an address, or None. `is_frame`: for a page; `is_main`: for the deck's own page."""
        parts = urlsplit(url)
        if parts.scheme not in {"http", "https"}:
            return None
        if url == URL and is_main == is_frame:
            # A page may fetch its own source; a page that frames itself would never end.
            return Answer(_without_integrity(self.html), "text/html; charset=utf-8", True)
        if is_main:
            return None
        if parts.hostname == HOST:
            return self._asset(unquote(parts.path))
        return mirror.find(url) if mirror else None

    def _asset(self, path: str) -> Answer | None:
        # WHY also without the folder: decks written by hand often name the file alone.
        name = path.removeprefix("/").removeprefix("./").removeprefix("assets/")
        content = self.assets.get(name)
        return None if content is None else Answer(content, content_type(name))


def content_type(name: str) -> str:
    """Guess the content type from a file name."""
    extension = "." + name.rpartition(".")[2].lower()
    found = _TYPES.get(extension) or mimetypes.guess_type(name)[0] or "application/octet-stream"
    return f"{found}; charset=utf-8" if found.startswith("text/") else found


def _without_integrity(html: bytes) -> bytes:
    """Remove checksums of scripts and styles: the mirror has another release than the deck's author used."""
    return _TAG.sub(lambda tag: _INTEGRITY.sub(b"", tag[0]), html)
