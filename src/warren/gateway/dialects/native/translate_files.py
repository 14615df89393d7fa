"""Names, types and times of files, between the native API and us. Pure: values in, values out."""

from __future__ import annotations

import os
import posixpath
import re
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote, unquote_to_bytes

from anyio import to_thread

from warren.domain.errors import NotFound
from warren.gateway.dialects.named_files import attachment_headers, bytes_of, guess_type, printable
from warren.gateway.dialects.native.answers import render_time
from warren.gateway.dialects.native.ranges import etag, last_modified
from warren.gateway.dialects.native.schemas_files import EntryShown

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from starlette.types import Scope

    from warren.core.agent.values import Match
    from warren.domain.values import Entry

T = TypeVar("T")

_LAST_SECOND = 253_402_300_799
_QUICK = 1000
_PLAIN = re.compile(r"[A-Za-z0-9_.~/-]*")


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
    return EntryShown.render(
        entry,
        name=path.rpartition("/")[2],
        path=path,
        modified_at=render_time(seconds),
        mode=f"{entry.mode & 0o777:03o}",
        target=None if entry.target is None else printable(entry.target),
        encoded_path=path if _PLAIN.fullmatch(path) else quote(bytes_of(entry.path)),
    )


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
