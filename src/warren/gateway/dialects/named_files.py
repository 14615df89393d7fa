"""Content type and download headers of a file by its name, the same in every dialect."""

from __future__ import annotations

import functools
import mimetypes
import os
import posixpath
from urllib.parse import quote

_MORE_TYPES = {
    ".gz": "application/gzip",
    ".ipynb": "application/x-ipynb+json",
    ".parquet": "application/vnd.apache.parquet",
    ".webp": "image/webp",
    ".docx": "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
    ".pptx": "application/vnd.openxmlformats-officedocument.presentationml.presentation",
    ".xlsx": "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
}
_REVALIDATE = (b"cache-control", b"private, no-cache")


def attachment_headers(name: str) -> list[tuple[bytes, bytes]]:
    """Build the headers that make a browser save the file under that name, and not show it."""
    plain = "".join(each if each.isascii() and each.isprintable() and each not in '"\\%' else "_" for each in name)
    exact = quote(printable(name), safe="")
    value = f'attachment; filename="{plain}"' + ("" if plain == name else f"; filename*=UTF-8''{exact}")
    return [(b"content-disposition", value.encode()), _REVALIDATE]


def guess_type(path: str) -> str:
    """Guess a type from the last suffix alone, the same on every host."""
    ending = posixpath.splitext(path)[1].lower()
    return _MORE_TYPES.get(ending) or _known_types().get(ending) or "application/octet-stream"


@functools.cache
def _known_types() -> dict[str, str]:
    # Not `mimetypes.guess_type`: it reads the host's tables, and parses the name as a URL.
    return mimetypes.MimeTypes().types_map[True]


def printable(text: str) -> str:
    """Make a name fit for JSON: bytes that are not UTF-8 become U+FFFD."""
    return text if text.isascii() else bytes_of(text).decode("utf-8", "replace")


def bytes_of(path: str) -> bytes:
    """Return a path as the bytes that the sandbox has."""
    try:
        return os.fsencode(path)
    except UnicodeEncodeError:
        # No file has such a name: an agent that sends it is hostile, and must not make us fail.
        return path.encode("utf-8", "replace")
