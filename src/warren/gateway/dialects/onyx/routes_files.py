"""Onyx's stored files over HTTP: upload, list, fetch and delete them. Each client has its own."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from warren.domain.errors import NotFound, QuotaExceeded, TooLarge
from warren.domain.records import Scope
from warren.gateway.api.large_responses import answer_with
from warren.gateway.api.operations import NO_CONTENT, Answer, Routes, json_reply
from warren.gateway.api.problems import retry_after
from warren.gateway.api.transfers import Streamed
from warren.gateway.dialects.details import IgnoredQuery, Refused
from warren.gateway.dialects.named_files import attachment_headers
from warren.gateway.dialects.onyx import schemas, translate
from warren.gateway.dialects.onyx.common import open_upload

if TYPE_CHECKING:
    from starlette.types import ASGIApp

    from warren.gateway.api.operations import Call

_SHOWN = 200
_ROW = 150
"""Bytes of a file in a list, besides its name."""
OCTETS = (b"content-type", b"application/octet-stream")


routes = Routes("Files", query=IgnoredQuery)


@routes.add(
    "POST /v1/files",
    Scope.RUN,
    description="The field `file` of a form. It is kept for an hour, unless the operator says otherwise.",
    raw_body="multipart/form-data",
    answers=(Answer("The file.", schemas.Uploaded, status=201),),
    errors=(413, 422, 429),
)
async def upload_file(call: Call) -> ASGIApp:
    """Store a file."""
    settings, owner = call.settings.dialects.onyx, call.caller.principal.owner
    async with call.service.files.transfers.one(owner), open_upload(call) as part:
        try:
            file = await call.service.stored_files.add(
                call.caller,
                part.sent_filename or "unnamed",
                part,
                ttl_s=settings.file_ttl_s,
                max_bytes=settings.file_bytes,
            )
        except TooLarge:
            raise too_large(call) from None
        except QuotaExceeded as error:
            raise Refused(429, str(error), retry_after(error.retry_after_s)) from None
    assert file is not None
    return json_reply(translate.render_uploaded(file), 201)


@routes.add(
    "GET /v1/files",
    Scope.READ,
    description="The caller's own, uploaded or left by programs; oldest first.",
    answers=(Answer("The files.", schemas.StoredFiles),),
)
async def list_files(call: Call) -> ASGIApp:
    """List the stored files."""
    files = await call.service.stored_files.list(call.caller)
    size = sum(len(file.name) + _ROW for file in files)
    return answer_with(call, size, lambda: json_reply({"files": [translate.render_stored(file) for file in files]}))


@routes.add(
    "GET /v1/files/{file_id}",
    Scope.READ,
    answers=(Answer("The file.", content_type="application/octet-stream"),),
    errors=(404,),
)
async def download_file(call: Call) -> ASGIApp:
    """Fetch a file."""
    try:
        async with contextlib.AsyncExitStack() as held:
            file = await call.service.stored_files.get(call.caller, call.params["file_id"])
            await held.enter_async_context(call.service.files.transfers.one(call.caller.principal.owner))
            content = await held.enter_async_context(call.service.stored_files.read(call.caller, file))
            headers = [OCTETS, *attachment_headers(file.name)]
            return Streamed(content, held.pop_all(), headers=headers, length=content.size)
    except NotFound:
        raise _not_found(call) from None


@routes.add("DELETE /v1/files/{file_id}", Scope.RUN, answers=(Answer("It is gone.", status=204),), errors=(404,))
async def delete_file(call: Call) -> ASGIApp:
    """Delete a file."""
    try:
        await call.service.stored_files.delete(call.caller, call.params["file_id"])
    except NotFound:
        raise _not_found(call) from None
    return NO_CONTENT


def too_large(call: Call) -> Refused:
    """Say how large a file may be."""
    most = translate.render_size(call.settings.dialects.onyx.file_bytes)
    return Refused(413, f"File size exceeds maximum of {most}")


def _not_found(call: Call) -> Refused:
    return Refused(404, f"File with ID '{call.params['file_id'][:_SHOWN]}' not found")
