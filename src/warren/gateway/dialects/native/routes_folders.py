"""Many files of a sandbox over HTTP: lists, searches, moves, forms and archives."""

from __future__ import annotations

import contextlib
import posixpath
from typing import TYPE_CHECKING

from warren.domain.errors import Error, InvalidRequest
from warren.domain.records import Scope
from warren.gateway.api.operations import Answer, Operation, json_reply
from warren.gateway.api.streaming import finish_unless_left
from warren.gateway.api.transfers import Streamed, Upload
from warren.gateway.dialects.multipart import Form
from warren.gateway.dialects.named_files import attachment_headers
from warren.gateway.dialects.native.common import sandbox_id
from warren.gateway.dialects.native.schemas_files import (
    Archive,
    EntryShown,
    Found,
    ListFiles,
    MakeFolder,
    Move,
    Search,
    Unpacked,
    UploadFiles,
)
from warren.gateway.dialects.native.translate_files import render_all, render_entry, render_match

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from typing import Any

    from starlette.types import ASGIApp

    from warren.gateway.api.operations import Call

COMPLETE = "Warren-Complete"
MAX_FORM_FILES = 10_000
_TAG = "Files"
_TYPES = {"tar": "application/x-tar", "tar.gz": "application/gzip", "zip": "application/zip"}


async def list_files(call: Call) -> ASGIApp:
    """List a folder."""
    query = call.query(ListFiles)
    listed = call.service.files.list(
        call.caller,
        sandbox_id(call),
        query.path,
        recursive=query.recursive,
        limit=query.limit,
        hidden=query.hidden,
    )
    entries, complete = await finish_unless_left(call.receive, listed)
    header = (COMPLETE.lower().encode(), b"true" if complete else b"false")
    return json_reply(await render_all(render_entry, entries), 200, header)


async def upload_files(call: Call) -> ASGIApp:
    """Write each file of a form."""
    query = call.query(UploadFiles)
    source = Upload(call.scope, call.receive, call.settings.serve.upload_bytes)
    return await source.finish(_write_form(call, query, Form(call.header(b"content-type"), aiter(source))))


async def _write_form(call: Call, query: UploadFiles, form: Form) -> ASGIApp:
    written: list[dict[str, Any]] = []
    while (part := await form.next_part()) is not None:
        name = part.filename
        if not name or name.startswith("/") or ".." in name.split("/") or len(written) >= MAX_FORM_FILES:
            raise InvalidRequest(
                f"{f'field {part.field[:100]!r} of the form has' if not name else 'a file of the form has'} "
                f"{'no file name' if not name else 'a name that leads out of the folder, or is one too many'}"
                f"{_so_far(written)}"
            )
        try:
            entry = await call.service.files.write(
                call.caller,
                sandbox_id(call),
                posixpath.join(query.path, name),
                part,
                mode=int(query.mode, 8),
                parents=query.parents,
            )
        except Error as error:
            error.args = (f"{error}{_so_far(written)}",)
            raise
        written.append(render_entry(entry))
    if not written:
        raise InvalidRequest("the form has no file")
    return json_reply(written, 201)


def _so_far(written: list[dict[str, Any]]) -> str:
    return f"; the {len(written)} before it were written" if written else ""


async def make_folder(call: Call) -> ASGIApp:
    """Make a folder."""
    body = call.body(MakeFolder)
    entry = await call.service.files.mkdir(call.caller, sandbox_id(call), body.path, parents=body.parents)
    return json_reply(render_entry(entry), 201)


async def move_file(call: Call) -> ASGIApp:
    """Move a file or folder."""
    body = call.body(Move)
    entry = await call.service.files.move(
        call.caller, sandbox_id(call), body.path, body.to, overwrite=body.overwrite, parents=body.parents
    )
    return json_reply(render_entry(entry))


async def search_files(call: Call) -> ASGIApp:
    """Search names and lines."""
    body = call.body(Search)
    found = call.service.files.search(
        call.caller,
        sandbox_id(call),
        body.path,
        name=body.name or None,
        text=body.text or None,
        regex=body.regex or None,
        limit=body.limit,
    )
    matches, complete = await finish_unless_left(call.receive, found)
    return json_reply({"items": await render_all(render_match, matches), "complete": complete})


async def get_archive(call: Call) -> ASGIApp:
    """Answer with a folder as an archive."""
    query = call.query(Archive)
    name = posixpath.basename(posixpath.normpath(query.path)).strip(".") or "workspace"
    headers = [(b"content-type", _TYPES[query.format].encode()), *attachment_headers(f"{name}.{query.format}")]
    if call.scope["method"] == "HEAD":
        await call.service.files.stat(call.caller, sandbox_id(call), query.path)
        return Streamed(_after(b""), contextlib.AsyncExitStack(), headers=headers)
    async with contextlib.AsyncExitStack() as held:
        archive = await held.enter_async_context(
            call.service.files.pack(call.caller, sandbox_id(call), query.path, query.format)
        )
        pieces = aiter(archive)
        # What cannot be packed at all is said before the first byte, and so with a status of its own.
        first = await anext(pieces, b"")
        return Streamed(_after(first, pieces), held.pop_all(), headers=headers)
    raise AssertionError


async def _after(first: bytes, rest: AsyncIterator[bytes] | None = None) -> AsyncIterator[bytes]:
    yield first
    if rest is not None:
        async for piece in rest:
            yield piece


async def put_archive(call: Call) -> ASGIApp:
    """Unpack the body of the request into a folder."""
    query = call.query(Archive)
    upload = Upload(call.scope, call.receive, call.settings.serve.upload_bytes)
    entries = await upload.finish(
        call.service.files.unpack(call.caller, sandbox_id(call), query.path, upload, query.format)
    )
    return json_reply({"entries": entries})


OPERATIONS = (
    Operation(
        method="GET",
        path="/sandboxes/{sandbox_id}/files",
        handler=list_files,
        grant=Scope.READ,
        tag=_TAG,
        summary="List a folder",
        description="Sorted by path.",
        query=ListFiles,
        answers=(
            Answer(
                description="What is in it.",
                model=list[EntryShown],
                headers={COMPLETE: "`false` when there is more than was listed."},
            ),
        ),
        errors=(404, 409, 414, 502),
    ),
    Operation(
        method="POST",
        path="/sandboxes/{sandbox_id}/files",
        handler=upload_files,
        grant=Scope.RUN,
        tag=_TAG,
        summary="Write several files from a form",
        description="Each part with a file name is a file; its name may have folders. They are written one by one as "
        "they arrive: when one fails, those before it are there.",
        raw_body="multipart/form-data",
        query=UploadFiles,
        answers=(Answer(status=201, description="All are written.", model=list[EntryShown]),),
        errors=(404, 409, 414, 413, 502),
    ),
    Operation(
        method="POST",
        path="/sandboxes/{sandbox_id}/mkdir",
        handler=make_folder,
        grant=Scope.RUN,
        tag=_TAG,
        summary="Make a folder",
        body=MakeFolder,
        example={"path": "outputs/charts"},
        answers=(Answer(status=201, description="It is there.", model=EntryShown),),
        errors=(404, 409, 413, 502),
    ),
    Operation(
        method="POST",
        path="/sandboxes/{sandbox_id}/move",
        handler=move_file,
        grant=Scope.RUN,
        tag=_TAG,
        summary="Move a file or folder",
        body=Move,
        example={"path": "draft.txt", "to": "final.txt"},
        answers=(Answer(description="It is there.", model=EntryShown),),
        errors=(404, 409, 413, 502),
    ),
    Operation(
        method="POST",
        path="/sandboxes/{sandbox_id}/search",
        handler=search_files,
        grant=Scope.READ,
        tag=_TAG,
        summary="Search names and lines",
        body=Search,
        body_is_optional=True,
        example={"name": "*.py", "text": "import pandas"},
        answers=(Answer(description="What was found.", model=Found),),
        errors=(404, 409, 502),
    ),
    Operation(
        method="GET",
        path="/sandboxes/{sandbox_id}/archive",
        handler=get_archive,
        grant=Scope.READ,
        tag=_TAG,
        summary="Get a folder as an archive",
        description="Made while it is sent. One that fails half-way closes the connection.",
        query=Archive,
        answers=(Answer(description="The archive.", content_type="*/*"),),
        errors=(404, 409, 414, 502),
    ),
    Operation(
        method="PUT",
        path="/sandboxes/{sandbox_id}/archive",
        handler=put_archive,
        grant=Scope.RUN,
        tag=_TAG,
        summary="Unpack an archive into a folder",
        description="All of it, or nothing: a member that leads out of the folder, or is a device, fails the whole.",
        raw_body="application/octet-stream",
        query=Archive,
        answers=(Answer(description="How much came out of it.", model=Unpacked),),
        errors=(404, 409, 414, 413, 502),
    ),
)
