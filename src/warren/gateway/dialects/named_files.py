"""What is said of a file by its name, the same in every dialect: its type, and the headers that have it saved."""

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
    """Build the headers that make a browser save what is answered, under that name, and not show it."""
    plain = "".join(each if each.isascii() and each.isprintable() and each not in '"\\%' else "_" for each in name)
    exact = quote(printable(name), safe="")
    value = f'attachment; filename="{plain}"' + ("" if plain == name else f"; filename*=UTF-8''{exact}")
    return [(b"content-disposition", value.encode()), _REVALIDATE]


def guess_type(path: str) -> str:
    """Guess a type from the last ending of a name alone, the same on every host."""
    ending = posixpath.splitext(path)[1].lower()
    return _MORE_TYPES.get(ending) or _known_types().get(ending) or "application/octet-stream"


@functools.cache
def _known_types() -> dict[str, str]:
    # Not the module's own functions: those read the host's files, and take a name for an address.
    return mimetypes.MimeTypes().types_map[True]


def printable(text: str) -> str:
    """Make a name fit for JSON: what is no UTF-8 becomes U+FFFD."""
    return text if text.isascii() else bytes_of(text).decode("utf-8", "replace")


def bytes_of(path: str) -> bytes:
    """Return a path as the bytes that the sandbox has."""
    try:
        return os.fsencode(path)
    except UnicodeEncodeError:
        # No file is named so: an agent that says it lies, and must not make us fail.
        return path.encode("utf-8", "replace")
