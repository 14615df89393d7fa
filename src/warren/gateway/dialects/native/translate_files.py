"""Names, types and times of files, between the native API and us. Pure: values in, values out."""

from __future__ import annotations

import functools
import mimetypes
import os
import posixpath
import re
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote, unquote_to_bytes

from anyio import to_thread

from warren.errors import NotFound
from warren.gateway.dialects.native.ranges import etag, last_modified
from warren.gateway.dialects.native.translate import render_time

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from starlette.types import Scope

    from warren.core.link_values import Match
    from warren.domain import Entry

T = TypeVar("T")

_LAST_SECOND = 253_402_300_799
_QUICK = 1000
_PLAIN = re.compile(r"[A-Za-z0-9_.~/-]*")
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


def parse_path(scope: Scope) -> str:
    """Return the file's path in the address, byte for byte: `path_params` have lost what is no UTF-8.

    Raises NotFound when the slash before it was itself encoded, which no address of ours has.
    """
    raw: bytes = scope.get("raw_path") or quote(scope["path"]).encode()
    _, found, path = raw.partition(b"/sandboxes/")[2].partition(b"/files/")
    if not found:
        raise NotFound("there is nothing at this address")
    return os.fsdecode(unquote_to_bytes(path))


async def render_all(render: Callable[[T], dict[str, Any]], items: Sequence[T]) -> list[dict[str, Any]]:
    """Write a list; a long one in a thread, because everybody else's requests would wait for it."""
    if len(items) <= _QUICK:
        return [render(item) for item in items]
    return await to_thread.run_sync(lambda: [render(item) for item in items])


def render_entry(entry: Entry) -> dict[str, Any]:
    """Write a file, folder or link."""
    seconds = min(max(entry.mtime_ns / 1e9, 0), _LAST_SECOND)
    path = printable(entry.path)
    return {
        "name": path.rpartition("/")[2],
        "type": entry.type,
        "size": entry.size,
        "path": path,
        "modified_at": render_time(seconds),
        "mode": f"{entry.mode & 0o777:03o}",
        "target": None if entry.target is None else printable(entry.target),
        "encoded_path": path if _PLAIN.fullmatch(path) else quote(_bytes_of(entry.path)),
    }


def render_match(match: Match) -> dict[str, Any]:
    """Write what a search found."""
    text = None if match.text is None else printable(match.text)
    return {"path": printable(match.path), "line": match.line, "text": text}


def entry_headers(entry: Entry) -> list[tuple[bytes, bytes]]:
    """Build the headers that tell one state of a file from another."""
    return [(b"etag", etag(entry).encode()), (b"last-modified", last_modified(entry).encode())]


def file_headers(entry: Entry) -> list[tuple[bytes, bytes]]:
    """Build the headers of a file that is answered."""
    return [
        *entry_headers(entry),
        (b"content-type", guess_type(entry.path).encode()),
        (b"accept-ranges", b"bytes"),
        *attachment_headers(posixpath.basename(entry.path)),
    ]


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
    return text if text.isascii() else _bytes_of(text).decode("utf-8", "replace")


def _bytes_of(path: str) -> bytes:
    try:
        return os.fsencode(path)
    except UnicodeEncodeError:
        # No file is named so: an agent that says it lies, and must not make us fail.
        return path.encode("utf-8", "replace")
