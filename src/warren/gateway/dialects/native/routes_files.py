"""Files of a sandbox over HTTP: whole and in parts, streamed both ways, with conditions.

Everything after `/files/` is a path, so what is done to files has names beside it: `/move`, `/mkdir`, `/search`.
"""

from __future__ import annotations

import contextlib
import dataclasses
from typing import TYPE_CHECKING, Any

from warren.domain.errors import Conflict, InvalidRequest, NotFound, OutOfRange, PreconditionFailed
from warren.domain.records import Scope
from warren.gateway.api.operations import NO_CONTENT, Answer, Reply, Routes
from warren.gateway.api.problems import build_problem
from warren.gateway.api.transfers import Streamed, Upload
from warren.gateway.dialects.native.common import sandbox_id
from warren.gateway.dialects.native.ranges import Conditions, Span, etag
from warren.gateway.dialects.native.schemas_files import DeleteFile, WriteFile
from warren.gateway.dialects.native.translate_files import entry_headers, file_headers, parse_path

if TYPE_CHECKING:
    from starlette.types import ASGIApp

    from warren.domain.values import Entry
    from warren.gateway.api.operations import Call

PATH = "/sandboxes/{sandbox_id}/files/{path:path}"


def _header(description: str) -> dict[str, Any]:
    return {"description": description, "schema": {"type": "string"}}


_WRITE_CONDITIONS = {
    "If-Match": _header("Only if the file has one of these tags; `*` is any."),
    "If-None-Match": _header("`*`: only if there is no file yet."),
    "If-Unmodified-Since": _header("Only if it was not changed since."),
}
_READ_CONDITIONS = {
    **_WRITE_CONDITIONS,
    "If-None-Match": _header("304 if the file still has this tag."),
    "If-Modified-Since": _header("304 if the file was not changed since."),
}
_STATE = {"ETag": "Names this state of the file.", "Last-Modified": "When it was changed."}
_CONTENT = {**_STATE, "Content-Disposition": "Always an attachment.", "Accept-Ranges": "`bytes`."}
_UNCHANGED = Answer("The caller has it already.", status=304, headers=_STATE)

routes = Routes("Files")


@routes.add(
    f"GET {PATH}",
    Scope.READ,
    description="One range of bytes is answered as a part, several as the whole. A download that fails half-way "
    "closes the connection.",
    headers={
        **_READ_CONDITIONS,
        "Range": _header("`bytes=0-99`, `bytes=100-` or `bytes=-100`."),
        "If-Range": _header("A tag or date: if the file has changed, all of it is answered."),
    },
    answers=(
        Answer("The file.", content_type="*/*", headers=_CONTENT),
        Answer(
            status=206,
            description="A part of it.",
            content_type="*/*",
            headers={**_CONTENT, "Content-Range": "Which part, and the size of the whole."},
        ),
        _UNCHANGED,
    ),
    errors=(404, 409, 414, 412, 416, 502),
)
async def read_file(call: Call) -> ASGIApp:
    """Read a file."""
    conditions, path = Conditions.of(call.header), parse_path(call.scope)
    span = None
    before: Entry | None = None
    if conditions:
        before = await _stat_file(call, path)
        conditions.check(before)
        if conditions.is_unchanged(before):
            return Reply(b"", 304, tuple(entry_headers(before)))
        try:
            span = conditions.span(before)
        except OutOfRange as error:
            return _out_of_range(call, error)
    return await _open(call, path, span, before)


async def _open(call: Call, path: str, span: Span | None, before: Entry | None) -> ASGIApp:
    start, length = (0, None) if span is None else span
    async with contextlib.AsyncExitStack() as held:
        content = await held.enter_async_context(
            call.service.files.read(call.caller, sandbox_id(call), path, start, length)
        )
        headers = file_headers(content.entry)
        if span is not None and before is not None:
            if etag(content.entry) != etag(before):
                # The part was cut from a file that has been replaced since: all of the new one is a right answer.
                return await _open(call, path, None, None)
            headers.append((b"content-range", span.content_range(content.entry.size).encode()))
        return Streamed(
            content,
            held.pop_all(),
            headers=headers,
            status=200 if span is None else 206,
            length=content.length,
        )
    raise AssertionError


@routes.add(
    f"HEAD {PATH}",
    Scope.READ,
    headers=_READ_CONDITIONS,
    answers=(Answer("The headers of a read.", headers=_CONTENT), _UNCHANGED),
    errors=(404, 409, 414, 412, 502),
)
async def describe_file(call: Call) -> ASGIApp:
    """Describe a file."""
    conditions = Conditions.of(call.header)
    entry = await _stat_file(call, parse_path(call.scope))
    conditions.check(entry)
    if conditions.is_unchanged(entry):
        return Reply(b"", 304, tuple(entry_headers(entry)))
    return _Head(entry)


class _Head:
    """The headers of a file without its content; their length is the file's, not the answer's."""

    def __init__(self, entry: Entry) -> None:
        self._headers = [*file_headers(entry), (b"content-length", b"%d" % entry.size)]

    async def __call__(self, _scope: Any, _receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self._headers})
        await send({"type": "http.response.body", "body": b""})


async def _stat_file(call: Call, path: str) -> Entry:
    entry = await call.service.files.stat(call.caller, sandbox_id(call), path)
    if entry.type != "file":
        what = "a folder: list it, or get it as an archive" if entry.type == "directory" else "no regular file"
        raise Conflict(f"this is {what}")
    return entry


def _out_of_range(call: Call, error: OutOfRange) -> ASGIApp:
    problem = build_problem(error)
    headers = {**problem.headers, "Content-Range": f"bytes */{error.size}"}
    return dataclasses.replace(problem, headers=headers).respond(call.caller.request_id)


@routes.add(
    f"PUT {PATH}",
    Scope.RUN,
    description="Whole, or not at all: concurrent readers see the old one.",
    raw_body="application/octet-stream",
    query=WriteFile,
    headers=_WRITE_CONDITIONS,
    answers=(Answer("It is written.", status=204, headers=_STATE),),
    errors=(404, 409, 414, 412, 413, 502),
)
async def write_file(call: Call) -> ASGIApp:
    """Write a file."""
    query, path = call.query(WriteFile), parse_path(call.scope)
    upload = Upload(call.scope, call.receive, call.settings.serve.upload_bytes)
    if path.endswith("/"):
        raise InvalidRequest(
            f"{path[:200]!r} ends with a slash, as folders do: name the file, or make a folder with mkdir"
        )
    if call.header(b"content-range") is not None:
        raise InvalidRequest("a part of a file cannot be written: send all of it, without Content-Range")
    conditions = Conditions.of(call.header)
    if conditions:
        # Before all of it has come, where that can be said already; `check` has the last word.
        conditions.check_write(await _find(call, path))
    try:
        entry = await call.service.files.write(
            call.caller,
            sandbox_id(call),
            path,
            upload,
            mode=int(query.mode, 8),
            create="exclusive" if conditions.wants_new else "replace",
            parents=query.parents,
            check=conditions.check_write if conditions else None,
        )
    except Conflict as error:
        if conditions.wants_new and await _find(call, path) is not None:
            raise PreconditionFailed("there is a file already, and If-None-Match forbids to replace it") from error
        raise
    return Reply(b"", 204, tuple(entry_headers(entry)))


@routes.add(
    f"DELETE {PATH}",
    Scope.RUN,
    query=DeleteFile,
    headers=_WRITE_CONDITIONS,
    answers=(Answer("It is gone.", status=204),),
    errors=(404, 409, 414, 412, 502),
)
async def delete_file(call: Call) -> ASGIApp:
    """Delete a file or folder."""
    conditions = Conditions.of(call.header)
    await call.service.files.delete(
        call.caller,
        sandbox_id(call),
        parse_path(call.scope),
        recursive=call.query(DeleteFile).recursive,
        check=conditions.check_write if conditions else None,
    )
    return NO_CONTENT


async def _find(call: Call, path: str) -> Entry | None:
    try:
        return await call.service.files.stat(call.caller, sandbox_id(call), path)
    except NotFound:
        # Also where there is no such sandbox, which the write itself then says.
        return None
