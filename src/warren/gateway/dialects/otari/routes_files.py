"""The files of otari's sessions over HTTP."""

from __future__ import annotations

import contextlib
import secrets
from typing import TYPE_CHECKING, Any

from warren.domain.errors import Conflict, InvalidRequest, NotFound, TooLarge
from warren.domain.records import Scope
from warren.domain.values import MIB
from warren.gateway.api.operations import Answer, Routes, json_reply
from warren.gateway.api.transfers import Streamed, Upload
from warren.gateway.dialects.details import IgnoredQuery, Refused, missing
from warren.gateway.dialects.multipart import Form, bounded
from warren.gateway.dialects.otari import schemas, translate
from warren.gateway.dialects.otari.sessions import using

if TYPE_CHECKING:
    from collections.abc import AsyncIterable, AsyncIterator

    from starlette.types import ASGIApp

    from warren.domain.values import Entry
    from warren.gateway.api.operations import Call
    from warren.gateway.dialects.multipart import Part

_FORM_BYTES = 1 << 20
"""Around the file: its boundaries and the other fields."""
_FIELD_BYTES = 16 << 10
_HELD_BYTES = 1 << 20
"""Of a file that comes before its path is known, held here; a larger one waits in the workspace under another name."""
_LISTED = 100_000

_PATH = "/sessions/{session_id}/files"

routes = Routes("Files", query=IgnoredQuery)


@routes.add(
    f"POST {_PATH}",
    Scope.RUN,
    description="A form with the field `file`, and `path` where its own name will not do.",
    raw_body="multipart/form-data",
    answers=(Answer("It is written.", schemas.Uploaded, status=201),),
    errors=(400, 403, 404, 413, 422),
)
async def upload_file(call: Call) -> ASGIApp:
    """Upload a file."""
    most = call.settings.dialects.otari.upload_bytes
    async with using(call) as live:
        try:
            source = Upload(call.scope, call.receive, most + _FORM_BYTES)
            entry = await source.finish(_Receiving(call, live.id, most).receive(source))
        except TooLarge as error:
            if "disk is full" in str(error):
                raise Refused(413, str(error)) from error
            raise Refused(413, f"file exceeds {most // MIB} MB limit") from error
    return json_reply({"path": entry.path, "size_bytes": entry.size}, 201)


class _Receiving:
    """One form on its way in: a file, and where it goes, in whichever order they come."""

    def __init__(self, call: Call, session: str, most: int) -> None:
        self._call = call
        self._session = session
        self._most = most
        self._path = ""

    async def receive(self, source: Upload) -> Entry:
        """Read the form and write the file."""
        try:
            form = Form(self._call.header(b"content-type"), aiter(source))
        except InvalidRequest:
            raise Refused(422, [missing(["body", "file"])]) from None
        entry: Entry | None = None
        while (part := await form.next_part()) is not None:
            if part.field == "file" and part.filename is not None and entry is None:
                entry = await self._take(form, part)
            else:
                await self._read_field(part)
        if entry is None:
            raise Refused(422, [missing(["body", "file"])])
        return entry

    async def _take(self, form: Form, part: Part) -> Entry:
        name, content = part.filename or "upload.bin", bounded(part, self._most)
        if self._path:
            return await self._write(self._path, content)
        held: list[bytes] = []
        size = 0
        async for piece in content:
            held.append(piece)
            size += len(piece)
            if size > _HELD_BYTES:
                return await self._take_large(form, name, _chain(held, content))
        await self._read_rest(form)
        return await self._write(self._path or name, b"".join(held))

    async def _take_large(self, form: Form, name: str, content: AsyncIterable[bytes]) -> Entry:
        files, caller, hidden = self._call.service.files, self._call.caller, f".upload-{secrets.token_hex(8)}"
        await self._write(hidden, content)
        try:
            await self._read_rest(form)
            target = self._path or name
            with _explained(target):
                await self._check_no_folder(target)
                return await files.move(caller, self._session, hidden, target, overwrite=True, parents=True)
        except BaseException:
            with contextlib.suppress(NotFound):
                await files.delete(caller, self._session, hidden)
            raise

    async def _check_no_folder(self, target: str) -> None:
        with contextlib.suppress(NotFound):
            entry = await self._call.service.files.stat(self._call.caller, self._session, target)
            if entry.type == "directory":
                raise Refused(400, f"is a directory: {target}")

    async def _read_rest(self, form: Form) -> None:
        while (part := await form.next_part()) is not None:
            await self._read_field(part)

    async def _read_field(self, part: Part) -> None:
        value = bytearray()
        async for piece in part:
            if part.filename is None and len(value) + len(piece) <= _FIELD_BYTES:
                value += piece
        if part.field == "path" and part.filename is None:
            self._path = value.decode("utf-8", "replace")

    async def _write(self, path: str, content: bytes | AsyncIterable[bytes]) -> Entry:
        with _explained(path):
            return await self._call.service.files.write(self._call.caller, self._session, path, content)


@contextlib.contextmanager
def _explained(path: str, *, what: str = "file") -> Any:
    try:
        yield
    except (NotFound, Conflict, InvalidRequest) as error:
        raise translate.explain_path(error, path, missing=what) from error


async def _chain(held: list[bytes], rest: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    for piece in held:
        yield piece
    async for piece in rest:
        yield piece


@routes.add(
    f"GET {_PATH}",
    Scope.READ,
    query=schemas.PathQuery,
    answers=(Answer("The file.", content_type="*/*"),),
    errors=(400, 403, 404, 422),
)
async def download_file(call: Call) -> ASGIApp:
    """Download a file."""
    path = call.query(schemas.PathQuery).path
    async with contextlib.AsyncExitStack() as held:
        live = await held.enter_async_context(using(call, Scope.READ))
        with _explained(path):
            content = await held.enter_async_context(call.service.files.read(call.caller, live.id, path))
        headers = [
            (b"content-type", translate.guess_content_type(path).encode("latin-1", "replace")),
            # A page that a program wrote must not act in the name of this service.
            (b"content-security-policy", b"sandbox; default-src 'none'"),
        ]
        return Streamed(content, held.pop_all(), headers=headers, length=content.length)
    raise AssertionError


@routes.add(
    f"GET {_PATH}/list",
    Scope.READ,
    description="Not those of folders below it.",
    query=schemas.ListQuery,
    answers=(Answer("The files, sorted.", schemas.Listed),),
    errors=(403, 404, 422),
)
async def list_files(call: Call) -> ASGIApp:
    """List the files of a folder."""
    path = call.query(schemas.ListQuery).path
    async with using(call, Scope.READ) as live:
        with _explained(path, what="path"):
            found = [entry async for entry in _find_files(call, live.id, path)]
    return json_reply({"files": [translate.render_entry(entry) for entry in found]})


async def _find_files(call: Call, session: str, path: str) -> AsyncIterator[Entry]:
    files = call.service.files
    entry = await files.stat(call.caller, session, path)
    if entry.type == "file":
        yield entry
    if entry.type != "directory":
        return
    entries, _ = await files.list(call.caller, session, path, limit=_LISTED)
    for each in entries:
        if each.type == "file":
            yield each
        elif each.type == "link":
            with contextlib.suppress(NotFound, Conflict, InvalidRequest):
                target = await files.stat(call.caller, session, each.path)
                if target.type == "file":
                    yield target
