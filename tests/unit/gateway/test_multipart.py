"""Forms, however they are cut, and what is no form."""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from warren.domain.errors import InvalidRequest
from warren.gateway.dialects.multipart import Form

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

TYPE = "multipart/form-data; boundary=xyz"


def form(*parts: tuple[str, bytes], end: bytes = b"--xyz--\r\n") -> bytes:
    pieces = [
        b'--xyz\r\nContent-Disposition: form-data; name="file"; filename="%s"\r\nContent-Type: text/plain\r\n\r\n%s\r\n'
        % (name.encode("utf-8", "surrogateescape"), content)
        for name, content in parts
    ]
    return b"".join(pieces) + end


def read(body: bytes, size: int = 7, content_type: str | None = TYPE) -> list[tuple[str | None, bytes]]:
    async def source() -> AsyncIterator[bytes]:
        for at in range(0, len(body), size):
            yield body[at : at + size]

    async def take() -> list[tuple[str | None, bytes]]:
        taken = []
        parts = Form(content_type, source())
        while (part := await parts.next_part()) is not None:
            taken.append((part.filename, b"".join([piece async for piece in part])))
        return taken

    return anyio.run(take)


@given(
    st.lists(
        st.tuples(st.sampled_from(["a", "b/c", "d e"]), st.binary(max_size=200) | st.just(b"\r\n--xy")), max_size=4
    ),
    st.integers(1, 300),
)
def test_every_part_comes_whole_however_the_body_is_cut(parts: list[tuple[str, bytes]], size: int) -> None:
    if any(b"\r\n--xyz" in content or content.startswith(b"--xyz") for _, content in parts):
        return

    assert read(form(*parts), size) == [(name, content) for name, content in parts]


@pytest.mark.parametrize("name", ["ünï/cödé.txt", "\udcff\udcfe", "with spaces", "100%.txt"])
def test_names_come_as_they_are(name: str) -> None:
    assert read(form((name, b"x"))) == [(name, b"x")]


def test_browsers_quote_a_few_characters() -> None:
    assert read(form(("a%22b%0Ac", b"x"))) == [('a"b\nc', b"x")]


def test_a_field_that_is_no_file_has_no_file_name() -> None:
    body = b'--xyz\r\nContent-Disposition: form-data; name="path"\r\n\r\nvalue\r\n--xyz--\r\n'

    assert read(body) == [(None, b"value")]


@pytest.mark.parametrize("content_type", [None, "text/plain", "multipart/form-data", "multipart/form-data; boundary="])
def test_what_is_not_sent_as_a_form_is_refused(content_type: str | None) -> None:
    with pytest.raises(InvalidRequest, match="multipart/form-data"):
        read(form(("a", b"x")), content_type=content_type)


@pytest.mark.parametrize("end", [b"", b"--xy"])
def test_a_form_that_ends_in_the_middle_is_refused(end: bytes) -> None:
    with pytest.raises(InvalidRequest, match="ends in the middle"):
        read(form(("a", b"x"), end=end))


def test_what_is_no_form_inside_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="not a form"):
        read(b"this is something else entirely")


def test_a_head_without_end_is_refused_before_it_is_kept() -> None:
    with pytest.raises(InvalidRequest, match="not a form"):
        read(b"--xyz\r\nContent-Disposition: " + b"x" * 100_000, 4096)
