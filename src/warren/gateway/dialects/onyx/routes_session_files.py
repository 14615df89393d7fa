"""The files of Onyx's sessions over HTTP."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING
from urllib.parse import quote, unquote_to_bytes

from warren.domain.errors import Conflict, NotFound, TooLarge
from warren.domain.records import Scope
from warren.gateway.api.operations import NO_CONTENT, Answer, Routes, json_reply
from warren.gateway.api.transfers import Streamed
from warren.gateway.dialects.details import IgnoredQuery, Refused
from warren.gateway.dialects.multipart import FileTooLarge, bounded
from warren.gateway.dialects.named_files import attachment_headers
from warren.gateway.dialects.onyx import common, schemas, translate
from warren.gateway.dialects.onyx.common import open_upload
from warren.gateway.dialects.onyx.routes_files import OCTETS, too_large

if TYPE_CHECKING:
    from starlette.types import ASGIApp

    from warren.gateway.api.operations import Call

_PATH = "/v1/sessions/{session_id}/files"
_MOST = 100_000
_SHOWN = 200


routes = Routes("Files of sessions", query=IgnoredQuery)


@routes.add(
    f"GET {_PATH}", Scope.READ, answers=(Answer("What is in its workspace.", schemas.SessionFiles),), errors=(404,)
)
async def list_files(call: Call) -> ASGIApp:
    """List the files of a session."""
    async with common.session(call) as sandbox:
        entries, complete = await call.service.files.list(call.caller, sandbox.id, recursive=True, limit=_MOST)
    return json_reply(translate.render_entries(entries, is_cut=not complete))


@routes.add(
    f"POST {_PATH}",
    Scope.RUN,
    description="The field `file` of a form, at the `path` of the query, or else at the file's own name.",
    raw_body="multipart/form-data",
    query=schemas.WriteFile,
    answers=(Answer("It is written.", status=204),),
    errors=(404, 413, 422),
)
async def write_file(call: Call) -> ASGIApp:
    """Write a file of a session."""
    asked = call.query(schemas.WriteFile).path
    path = None if asked is None else translate.parse_path(asked)
    async with common.session(call) as sandbox, open_upload(call) as part:
        path = path or translate.parse_path(part.sent_filename)
        content = bounded(part, call.settings.dialects.onyx.file_bytes)
        try:
            await call.service.files.write(call.caller, sandbox.id, path, content)
        except TooLarge as error:
            # Otherwise it is the workspace that is full.
            raise too_large(call) if isinstance(error, FileTooLarge) else Refused(413, str(error)) from None
        except Conflict as error:
            raise Refused(422, str(error)) from None
    return NO_CONTENT


@routes.add(
    f"GET {_PATH}/{{path:path}}",
    Scope.READ,
    answers=(Answer("The file.", content_type="application/octet-stream"),),
    errors=(404, 422),
)
async def read_file(call: Call) -> ASGIApp:
    """Read a file of a session."""
    async with common.session(call) as sandbox, contextlib.AsyncExitStack() as held:
        path = translate.parse_path(_path(call))
        try:
            content = await held.enter_async_context(call.service.files.read(call.caller, sandbox.id, path))
        except (NotFound, Conflict):
            raise Refused(404, f"File '{path[:_SHOWN]}' not found in session") from None
        headers = [OCTETS, *attachment_headers(path.rpartition("/")[2])]
        return Streamed(content, held.pop_all(), headers=headers, length=content.length)
    raise AssertionError


def _path(call: Call) -> str:
    """Return the path in the address, byte for byte: the parameters have lost what is no UTF-8."""
    raw: bytes = call.scope.get("raw_path") or quote(call.scope["path"]).encode()
    return os.fsdecode(unquote_to_bytes(raw.partition(b"/sessions/")[2].partition(b"/files/")[2]))
