"""The one file of a form, as it arrives."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from warren.domain.errors import InvalidRequest, TooLarge
from warren.gateway.api.transfers import Upload
from warren.gateway.dialects.details import Refused
from warren.gateway.dialects.multipart import Form
from warren.gateway.dialects.onyx import translate

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from warren.gateway.api.operations import Call
    from warren.gateway.dialects.multipart import Part

_FORM_BYTES = 1 << 20
"""Around the file: its boundaries and the other fields."""


@contextlib.asynccontextmanager
async def open_upload(call: Call) -> AsyncIterator[Part]:
    """Find the field `file`, which the body reads to its end. Raises Refused."""
    limit = call.settings.dialects.onyx.file_bytes
    try:
        upload = Upload(call.scope, call.receive, limit + _FORM_BYTES)
        form = _open_form(call, upload)
        part = await form.next_part()
        while part is not None and (part.field != "file" or part.filename is None):
            await _skip(part)
            part = await form.next_part()
        if part is None:
            raise _missing()
        yield part
        while (rest := await form.next_part()) is not None:
            await _skip(rest)
    except TooLarge:
        raise Refused(413, f"File size exceeds maximum of {translate.render_size(limit)}") from None


def _open_form(call: Call, upload: Upload) -> Form:
    try:
        return Form(call.header(b"content-type"), aiter(upload))
    except InvalidRequest:
        raise _missing() from None


async def _skip(part: Part) -> None:
    async for _ in part:
        pass  # It means nothing here.


def _missing() -> Refused:
    return Refused(422, [{"type": "missing", "loc": ["body", "file"], "msg": "Field required", "input": None}])
