"""Streaming parser of `multipart/form-data`: no part is ever whole in memory or on disk."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from python_multipart.exceptions import MultipartParseError
from python_multipart.multipart import MultipartParser, parse_options_header

from warren.domain.errors import InvalidRequest, TooLarge

if TYPE_CHECKING:
    from collections.abc import AsyncIterable, AsyncIterator

_MAX_HEADERS = 16
_MAX_HEADER_BYTES = 16 << 10
_END = None


class FileTooLarge(TooLarge):
    """A file of a form is larger than it may be."""


async def bounded(content: AsyncIterable[bytes], limit: int) -> AsyncIterator[bytes]:
    """Pass on a file's content. Raises FileTooLarge."""
    size = 0
    async for piece in content:
        size += len(piece)
        if size > limit:
            raise FileTooLarge("the file is too large")
        yield piece


class Part:
    """One file of a form: its name as the client gave it, and its content, once."""

    def __init__(self, form: Form, headers: dict[bytes, bytes]) -> None:
        self._form = form
        _, options = parse_options_header(headers.get(b"content-disposition", b""))
        self.field = options.get(b"name", b"").decode("utf-8", "replace")
        name = options.get(b"filename")
        self.sent_filename = (name or b"").decode("utf-8", "surrogateescape")
        """As it was sent, for dialects whose original decodes nothing."""
        # Browsers write these three so, and nothing else (WHATWG, multipart/form-data encoding).
        for code, character in ((b"%22", b'"'), (b"%0D", b"\r"), (b"%0A", b"\n")):
            name = name and name.replace(code, character)
        self.filename = None if name is None else name.decode("utf-8", "surrogateescape")
        """None for a field that is no file."""

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """Yield its content."""
        while (piece := await self._form.next_piece()) is not _END:
            yield piece


class Form:
    """The parts of a form. Take one, read it to its end, take the next. Raises InvalidRequest for a malformed form."""

    def __init__(self, content_type: str | None, source: AsyncIterator[bytes]) -> None:
        kind, options = parse_options_header(content_type)
        boundary = options.get(b"boundary", b"")
        if kind != b"multipart/form-data" or not 0 < len(boundary) <= 256:
            raise InvalidRequest("send the files as multipart/form-data, with a boundary in Content-Type")
        self._source = source
        self._pieces: deque[bytes | None] = deque()
        self._opened: deque[Part] = deque()
        self._headers: dict[bytes, bytes] = {}
        self._field = self._value = b""
        self._is_over = False
        self._parser = MultipartParser(
            boundary,
            {
                "on_part_begin": self._begin,
                "on_header_field": self._add_field,
                "on_header_value": self._add_value,
                "on_header_end": self._end_header,
                "on_headers_finished": self._open,
                "on_part_data": self._add_data,
                "on_part_end": lambda: self._pieces.append(_END),
                "on_end": self._finish,
            },
            max_header_count=_MAX_HEADERS,
            max_header_size=_MAX_HEADER_BYTES,
        )

    async def next_part(self) -> Part | None:
        """Return the next part, None after the last; the one before it must have been read."""
        while not self._opened and not self._is_over:
            await self._feed()
        if self._opened:
            return self._opened.popleft()
        async for _ in self._source:
            pass  # The rest after a form has no meaning, but the connection is reusable only once it is read.
        return None

    async def next_piece(self) -> bytes | None:
        """Return more of the part that was taken last; None is its end."""
        while not self._pieces:
            await self._feed()
        if self._pieces[0] is _END:
            return self._pieces.popleft()
        # WHY: the parser yields content that resembles boundaries a few bytes at a time.
        joined = []
        while self._pieces and (piece := self._pieces[0]) is not _END:
            joined.append(piece)
            self._pieces.popleft()
        return b"".join(joined)

    async def _feed(self) -> None:
        piece = await anext(self._source, None)
        if piece is None:
            raise InvalidRequest("the form ends in the middle: its last boundary is missing")
        try:
            self._parser.write(piece)
        except MultipartParseError as error:
            raise InvalidRequest(f"this is not a form: {str(error)[:200]}") from error

    def _begin(self) -> None:
        self._headers = {}

    def _add_field(self, data: bytes, start: int, end: int) -> None:
        self._field += data[start:end]

    def _add_value(self, data: bytes, start: int, end: int) -> None:
        self._value += data[start:end]

    def _end_header(self) -> None:
        self._headers[self._field.lower()] = self._value
        self._field = self._value = b""

    def _open(self) -> None:
        self._opened.append(Part(self, self._headers))

    def _add_data(self, data: bytes, start: int, end: int) -> None:
        self._pieces.append(data[start:end])

    def _finish(self) -> None:
        self._is_over = True
