"""What the routes of Onyx's dialect share: files by id, uploads, sessions by name, and answers to programs."""

from __future__ import annotations

import contextlib
import re
import time
from typing import TYPE_CHECKING

from warren.domain.errors import InvalidRequest, NotFound, Overloaded, QuotaExceeded, TooLarge
from warren.gateway.api.large_responses import answer_with, measure_result
from warren.gateway.api.operations import json_reply
from warren.gateway.api.problems import build_problem
from warren.gateway.api.streaming import EventStream, encode_event, finish_unless_left
from warren.gateway.api.transfers import Upload
from warren.gateway.dialects import details
from warren.gateway.dialects.details import Refused
from warren.gateway.dialects.multipart import Form
from warren.gateway.dialects.onyx import translate

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Sequence

    from starlette.responses import Response
    from starlette.types import ASGIApp

    from warren.core.executions.jobs import Job
    from warren.domain.records import Sandbox, StoredFile
    from warren.domain.values import Limits
    from warren.gateway.api.operations import Call
    from warren.gateway.api.problems import Problem
    from warren.gateway.dialects.multipart import Part
    from warren.gateway.dialects.onyx import schemas

_SESSION = re.compile(r"code-session-[0-9a-f]{32}")
_SHOWN = 200
_FORM_BYTES = 1 << 20
"""Around the file: its boundaries and the other fields."""
EVENTS = (
    "`output` (`stream`, `data`), any number of them, then one `result` (`exit_code`, `timed_out`, `duration_ms`, "
    "`files`) or one `error` (`message`)."
)
_HEADERS = (
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"connection", b"keep-alive"),
    (b"x-accel-buffering", b"no"),
)


async def resolve(
    call: Call, files: Sequence[schemas.FileRef], *, reserved: bool, skip_gone: bool = False
) -> dict[str, StoredFile]:
    """Find the files of a request, by path; of two at one path the last counts. Raises Refused.

    With `skip_gone`, a file that is no longer stored is left out: a session names all that its chat ever had.
    """
    found: list[StoredFile | None] = []
    for file in files:
        try:
            found.append(await call.service.stored_files.get(call.caller, file.file_id))
        except NotFound:
            if not skip_gone:
                named = f"File with ID '{file.file_id[:_SHOWN]}' not found for path '{file.path[:_SHOWN]}'."
                raise Refused(404, named) from None
            found.append(None)
    paths = [translate.parse_path(file.path, reserved=reserved) for file in files]
    return {path: file for path, file in zip(paths, found, strict=True) if file is not None}


@contextlib.asynccontextmanager
async def session(call: Call) -> AsyncIterator[Sandbox]:
    """Find the session of the path. Raises Refused, also when it ends while the body uses it."""
    session_id = call.params["session_id"]
    try:
        yield await _find(call, session_id)
    except NotFound:
        raise Refused(404, f"Session '{session_id[:_SHOWN]}' not found") from None


async def _find(call: Call, session_id: str) -> Sandbox:
    if _SESSION.fullmatch(session_id) is None:
        raise NotFound(session_id)
    sandbox = await call.service.sandboxes.find(call.caller, session_key(session_id))
    if sandbox.expires_at is not None and sandbox.expires_at <= time.time():
        raise NotFound(session_id)
    return sandbox


def session_key(session_id: str) -> str:
    """Return the session key of the sandbox of a session."""
    return f"onyx/{session_id}"


def image(call: Call) -> str | None:
    """Return the image of this dialect's sandboxes; None for the default."""
    return call.settings.dialects.onyx.image or None


def limits(call: Call) -> Limits:
    """Return the limits of this dialect's sandboxes."""
    return call.service.policy.limits_with_memory(
        call.caller.principal.tenant, call.settings.dialects.onyx.memory_bytes
    )


def respond(exc: BaseException, request_id: str) -> Response:
    """Build the answer to a request that ended in an exception, with Retry-After where it is retryable."""
    if isinstance(exc, QuotaExceeded | Overloaded):
        problem = build_problem(exc)
        saturated = isinstance(exc, QuotaExceeded)
        words = "Execution capacity on this replica is saturated" if saturated else _unavailable(exc.code)
        return details.reply(problem.status, f"{words}: {problem.detail}", problem.headers)
    response = details.respond(exc, request_id)
    if response.status_code == 503:
        response.headers.setdefault("Retry-After", "1")
    return response


def _unavailable(reason: str) -> str:
    return f"Executor capacity unavailable ({reason})"


async def answer(call: Call, job: Job) -> ASGIApp:
    """Run a job to its end and answer with it. A client that leaves ends it."""
    limit = call.settings.dialects.onyx.output_bytes
    done = await finish_unless_left(call.receive, call.service.jobs.run(call.caller, job))
    size = measure_result(done.execution.result)
    return answer_with(call, size, lambda: json_reply(translate.render_executed(done, limit)))


async def follow(call: Call, job: Job, held: contextlib.AsyncExitStack) -> ASGIApp:
    """Start a job and answer with its events; what `held` has is let go with the answer."""
    followed = await held.enter_async_context(call.service.jobs.follow(call.caller, job))
    events = await held.enter_async_context(contextlib.aclosing(followed.events()))

    async def write() -> AsyncGenerator[bytes, None]:
        writer = translate.StreamWriter(call.settings.dialects.onyx.output_bytes)
        async for event in events:
            for written in writer.write(event):
                yield written
        for written in writer.finish(await followed.finish()):
            yield written

    return EventStream(write(), held.pop_all(), heartbeat_s=call.settings.serve.heartbeat_s, headers=_HEADERS, say=_say)


def _say(problem: Problem, _request_id: str) -> bytes:
    return encode_event("error", {"message": problem.detail})


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
    return Refused(422, [details.missing(["body", "file"])])
