"""Many files of a sandbox over HTTP: lists, searches, moves, forms and archives."""

from __future__ import annotations

import contextlib
import posixpath
from typing import TYPE_CHECKING

from warren.domain.errors import Error, InvalidRequest
from warren.domain.records import Scope
from warren.gateway.api.operations import Answer, Routes, json_reply
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
_TYPES = {"tar": "application/x-tar", "tar.gz": "application/gzip", "zip": "application/zip"}


routes = Routes("Files")


@routes.add(
    "GET /sandboxes/{sandbox_id}/files",
    Scope.READ,
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
)
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


@routes.add(
    "POST /sandboxes/{sandbox_id}/files",
    Scope.RUN,
    description="Each part with a file name is a file; its name may have folders. They are written one by one as "
    "they arrive: when one fails, those before it are there.",
    raw_body="multipart/form-data",
    query=UploadFiles,
    answers=(Answer("All are written.", list[EntryShown], status=201),),
    errors=(404, 409, 414, 413, 502),
)
async def upload_files(call: Call) -> ASGIApp:
    """Write several files from a form."""
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


@routes.add(
    "POST /sandboxes/{sandbox_id}/mkdir",
    Scope.RUN,
    body=MakeFolder,
    example={"path": "outputs/charts"},
    answers=(Answer("It is there.", EntryShown, status=201),),
    errors=(404, 409, 413, 502),
)
async def make_folder(call: Call) -> ASGIApp:
    """Make a folder."""
    body = call.body(MakeFolder)
    entry = await call.service.files.mkdir(call.caller, sandbox_id(call), body.path, parents=body.parents)
    return json_reply(render_entry(entry), 201)


@routes.add(
    "POST /sandboxes/{sandbox_id}/move",
    Scope.RUN,
    body=Move,
    example={"path": "draft.txt", "to": "final.txt"},
    answers=(Answer("It is there.", EntryShown),),
    errors=(404, 409, 413, 502),
)
async def move_file(call: Call) -> ASGIApp:
    """Move a file or folder."""
    body = call.body(Move)
    entry = await call.service.files.move(
        call.caller, sandbox_id(call), body.path, body.to, overwrite=body.overwrite, parents=body.parents
    )
    return json_reply(render_entry(entry))


@routes.add(
    "POST /sandboxes/{sandbox_id}/search",
    Scope.READ,
    body=Search,
    body_is_optional=True,
    example={"name": "*.py", "text": "import pandas"},
    answers=(Answer("What was found.", Found),),
    errors=(404, 409, 502),
)
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


@routes.add(
    "GET /sandboxes/{sandbox_id}/archive",
    Scope.READ,
    description="Made while it is sent. One that fails half-way closes the connection.",
    query=Archive,
    answers=(Answer("The archive.", content_type="*/*"),),
    errors=(404, 409, 414, 502),
)
async def get_archive(call: Call) -> ASGIApp:
    """Get a folder as an archive."""
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


@routes.add(
    "PUT /sandboxes/{sandbox_id}/archive",
    Scope.RUN,
    description="All of it, or nothing: a member that leads out of the folder, or is a device, fails the whole.",
    raw_body="application/octet-stream",
    query=Archive,
    answers=(Answer("How much came out of it.", Unpacked),),
    errors=(404, 409, 414, 413, 502),
)
async def put_archive(call: Call) -> ASGIApp:
    """Unpack an archive into a folder."""
    query = call.query(Archive)
    upload = Upload(call.scope, call.receive, call.settings.serve.upload_bytes)
    entries = await upload.finish(
        call.service.files.unpack(call.caller, sandbox_id(call), query.path, upload, query.format)
    )
    return json_reply({"entries": entries})
