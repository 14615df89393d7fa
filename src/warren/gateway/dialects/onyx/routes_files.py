"""Onyx's stored files over HTTP: upload, list, fetch and delete them. Each client has its own."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from warren.domain.errors import NotFound, QuotaExceeded, TooLarge
from warren.domain.records import Scope
from warren.gateway.api.large_responses import answer_with
from warren.gateway.api.operations import NO_CONTENT, Answer, Operation, json_reply
from warren.gateway.api.problems import retry_after
from warren.gateway.api.transfers import Streamed
from warren.gateway.dialects.details import Refused
from warren.gateway.dialects.named_files import attachment_headers
from warren.gateway.dialects.onyx import schemas, translate
from warren.gateway.dialects.onyx.uploads import open_upload

if TYPE_CHECKING:
    from starlette.types import ASGIApp

    from warren.gateway.api.operations import Call

_TAG = "Files"
_SHOWN = 200
_ROW = 150
"""Bytes of a file in a list, besides its name."""
OCTETS = (b"content-type", b"application/octet-stream")


async def upload_file(call: Call) -> ASGIApp:
    """Store a file."""
    settings, owner = call.settings.dialects.onyx, call.caller.principal.owner
    async with call.service.files.transfers.one(owner), open_upload(call) as part:
        try:
            file = await call.service.stored_files.add(
                call.caller,
                part.filename or "unnamed",
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


async def list_files(call: Call) -> ASGIApp:
    """List the caller's files."""
    files = await call.service.stored_files.list(call.caller)
    size = sum(len(file.name) + _ROW for file in files)
    return answer_with(call, size, lambda: json_reply({"files": [translate.render_stored(file) for file in files]}))


async def download_file(call: Call) -> ASGIApp:
    """Answer with a file."""
    try:
        async with contextlib.AsyncExitStack() as held:
            file = await call.service.stored_files.get(call.caller, call.params["file_id"])
            await held.enter_async_context(call.service.files.transfers.one(call.caller.principal.owner))
            content = await held.enter_async_context(call.service.stored_files.read(call.caller, file))
            headers = [OCTETS, *attachment_headers(file.name)]
            return Streamed(content, held.pop_all(), headers=headers, length=content.size)
    except NotFound:
        raise _not_found(call) from None


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


OPERATIONS = (
    Operation(
        method="POST",
        path="/v1/files",
        handler=upload_file,
        grant=Scope.RUN,
        tag=_TAG,
        summary="Store a file",
        description="The field `file` of a form. It is kept for an hour, unless the operator says otherwise.",
        raw_body="multipart/form-data",
        query=schemas.Nothing,
        answers=(Answer(status=201, description="The file.", model=schemas.Uploaded),),
        errors=(413, 422, 429),
    ),
    Operation(
        method="GET",
        path="/v1/files",
        handler=list_files,
        grant=Scope.READ,
        tag=_TAG,
        summary="List the stored files",
        description="The caller's own, uploaded or left by programs; oldest first.",
        query=schemas.Nothing,
        answers=(Answer(description="The files.", model=schemas.StoredFiles),),
    ),
    Operation(
        method="GET",
        path="/v1/files/{file_id}",
        handler=download_file,
        grant=Scope.READ,
        tag=_TAG,
        summary="Fetch a file",
        query=schemas.Nothing,
        answers=(Answer(description="The file.", content_type="application/octet-stream"),),
        errors=(404,),
    ),
    Operation(
        method="DELETE",
        path="/v1/files/{file_id}",
        handler=delete_file,
        grant=Scope.RUN,
        tag=_TAG,
        summary="Delete a file",
        query=schemas.Nothing,
        answers=(Answer(status=204, description="It is gone."),),
        errors=(404,),
    ),
)
