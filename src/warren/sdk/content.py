"""Uploads from any source: read in pieces, and where possible again from the beginning."""

from __future__ import annotations

import os
import secrets
from collections.abc import AsyncIterable, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import IO, TypeAlias, cast

PIECE = 1 << 20
"""Bytes of one piece: small enough for memory, large enough for speed."""

Progress: TypeAlias = Callable[[int, int | None], object]
"""Called with the bytes done and the bytes in all, None where that is unknown."""
Uploadable: TypeAlias = bytes | str | os.PathLike[str] | IO[bytes] | Iterable[bytes] | AsyncIterable[bytes]
"""Bytes, text, a file by its path (as `pathlib.Path`), an open file, or pieces. Only `AsyncClient` takes async ones."""
Pieces: TypeAlias = Iterator[bytes] | AsyncIterable[bytes]


@dataclass(frozen=True, slots=True)
class Content:
    """A body: how to read it, and its size where that is known."""

    read: Callable[[], Pieces]
    size: int | None
    can_read_again: bool = True

    @classmethod
    def of(cls, source: Uploadable) -> Content:
        """Build a body from any kind of content. Raises OSError, TypeError."""
        if isinstance(source, str):
            source = source.encode()
        if isinstance(source, bytes | bytearray | memoryview):
            data = bytes(source)
            return cls(lambda: _cut(data), len(data))
        if isinstance(source, os.PathLike):
            path = os.fspath(source)
            return cls(lambda: _read_path(path), os.stat(path).st_size)
        if hasattr(source, "read"):
            return _of_file(cast("IO[bytes]", source))
        if isinstance(source, AsyncIterable):
            return cls(lambda: source, None, can_read_again=False)
        if isinstance(source, Iterable):
            return cls(lambda: iter(source), None, can_read_again=False)
        raise TypeError(f"cannot upload {type(source).__name__}: give bytes, text, a path, an open file or pieces")


def build_form(files: Mapping[str, Uploadable]) -> tuple[Content, str]:
    """Build a form of several files, and its content type. Raises TypeError for what is only asynchronous."""
    boundary = secrets.token_hex(16)
    parts: list[Content] = []
    for name, source in files.items():
        # As browsers write them; a name with other characters needs no more than UTF-8.
        plain = name.replace('"', "%22").replace("\r", "%0D").replace("\n", "%0A")
        head = f'--{boundary}\r\nContent-Disposition: form-data; name="file"; filename="{plain}"\r\n\r\n'
        parts += [Content.of(head), Content.of(source), Content.of("\r\n")]
    parts.append(Content.of(f"--{boundary}--\r\n"))

    def read() -> Iterator[bytes]:
        for part in parts:
            pieces = part.read()
            if isinstance(pieces, AsyncIterable):
                raise TypeError("files of a form cannot be read asynchronously: give bytes, a path or an open file")
            yield from pieces

    sizes = [part.size for part in parts]
    size = None if None in sizes else sum(each or 0 for each in sizes)
    again = all(part.can_read_again for part in parts)
    return Content(read, size, again), f"multipart/form-data; boundary={boundary}"


def _of_file(file: IO[bytes]) -> Content:
    """Read an open file from its position. Raises TypeError for a file that is open as text."""
    try:
        start = file.tell()
        size = file.seek(0, os.SEEK_END) - start
        file.seek(start)
    except (OSError, AttributeError):
        return Content(lambda: _read_file(file), None, can_read_again=False)

    def again() -> Iterator[bytes]:
        file.seek(start)
        return _read_file(file)

    return Content(again, size)


def _cut(data: bytes) -> Iterator[bytes]:
    for start in range(0, len(data), PIECE):
        yield data[start : start + PIECE]


def _read_path(path: str) -> Iterator[bytes]:
    with open(path, "rb") as file:
        yield from _read_file(file)


def _read_file(file: IO[bytes]) -> Iterator[bytes]:
    while piece := file.read(PIECE):
        if not isinstance(piece, bytes):
            raise TypeError('open the file in binary mode, as open(path, "rb")')
        yield piece
