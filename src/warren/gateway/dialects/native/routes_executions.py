"""The native API: run code and commands, follow them, look at what ran."""

from __future__ import annotations

import contextlib
import dataclasses
from typing import TYPE_CHECKING

from warren.domain.errors import InvalidRequest
from warren.domain.records import Scope
from warren.gateway.api.bodies import read_body
from warren.gateway.api.large_responses import LARGE, answer_with, measure_displays, measure_result
from warren.gateway.api.operations import NO_CONTENT, Answer, Routes, json_reply
from warren.gateway.api.streaming import EventStream, finish_unless_left
from warren.gateway.dialects.native import schemas_executions as schemas
from warren.gateway.dialects.native import translate, translate_requests
from warren.gateway.dialects.native.common import IDEMPOTENCY, execution_id, idempotency_key, sandbox_id
from warren.gateway.dialects.native.events import EVENTS, EventWriter
from warren.gateway.dialects.native.schemas_answers import ExecutionShown, ListOf, RecordedExecution

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from contextlib import AbstractAsyncContextManager

    from starlette.types import ASGIApp

    from warren.core.executions.executions import NewExecution
    from warren.domain.records import Execution
    from warren.domain.values import Event
    from warren.gateway.api.operations import Call, Reply
    from warren.gateway.dialects.native.schemas_answers import EncodingName


_FREE = contextlib.nullcontext()

_STREAM = Answer(f"Server-sent events: {EVENTS}", content_type="text/event-stream")
_PATH = "/sandboxes/{sandbox_id}/executions"

routes = Routes("Executions")


@routes.add(
    "POST /sandboxes/{sandbox_id}/exec",
    Scope.RUN,
    description="Answers when it has ended; what a program does wrong is a result, never an HTTP error. A stopped "
    "sandbox is started first. With `Accept: text/event-stream` or `stream: true` the answer is a stream of "
    "events. A client that goes away ends what is not in the background.",
    body=schemas.Exec,
    example={"code": "x = 6 * 7\nx", "timeout_seconds": 60},
    headers=IDEMPOTENCY,
    answers=(
        Answer("How it ended.", ExecutionShown),
        _STREAM,
        Answer(
            status=202,
            description="It runs in the background.",
            model=ExecutionShown,
            headers={"Location": "Where the execution is."},
        ),
    ),
    errors=(404, 409, 502),
)
async def run_execution(call: Call) -> ASGIApp:
    """Run code or a command."""
    body = call.body(schemas.Exec)
    new = translate_requests.parse_execution(body, idempotency_key(call))
    target = sandbox_id(call)
    if body.stream or _wants_events(call):
        return await _stream(call, target, new, body.encoding)
    executions = call.service.executions
    if body.background:
        execution = await executions.start(call.caller, target, new)
        location = f"/api/v1/sandboxes/{target}/executions/{execution.id}".encode()
        return json_reply(translate.render_execution(execution, body.encoding), 202, (b"location", location))
    work = _begin_and_wait(call, target, new) if body.stdin_open else executions.run(call.caller, target, new)
    execution = await finish_unless_left(call.receive, work)
    size = measure_result(execution.result)
    return answer_with(call, size, lambda: json_reply(translate.render_execution(execution, body.encoding)))


def _wants_events(call: Call) -> bool:
    accept = call.header(b"accept")
    return accept is not None and "text/event-stream" in accept.lower()


async def _begin_and_wait(call: Call, target: str, new: NewExecution) -> Execution:
    async with await call.service.executions.begin(call.caller, target, new) as running:
        return await running.wait()


async def _stream(call: Call, target: str, new: NewExecution, encoding: EncodingName) -> EventStream:
    executions = call.service.executions
    if new.background:
        execution = await executions.start(call.caller, target, new)
        return await _follow(call, execution, 0, encoding)
    held = contextlib.AsyncExitStack()
    running = await held.enter_async_context(await executions.begin(call.caller, target, new))
    events = await held.enter_async_context(contextlib.aclosing(running.events()))

    async def write() -> AsyncGenerator[bytes, None]:
        writer = EventWriter(encoding)
        yield writer.start(running.execution)
        async for event in events:
            async with _place(call, event):
                for written in writer.write(event, running.execution):
                    yield written

    return EventStream(write(), held, heartbeat_s=call.settings.serve.heartbeat_s)


def _place(call: Call, event: Event) -> AbstractAsyncContextManager[None]:
    """Hold a place for a large event until it is sent; a small one needs none."""
    size = measure_result(event.result) + (0 if event.display is None else measure_displays((event.display,)))
    return _FREE if size <= LARGE else call.service.executions.results.one(call.caller.principal.owner)


async def _follow(
    call: Call, execution: Execution, after: int, encoding: EncodingName, *, follow: bool = True
) -> EventStream:
    """Follow an execution that goes on without the client, or write its events up to now."""
    held = contextlib.AsyncExitStack()
    executions = call.service.executions
    found = await executions.events(call.caller, execution.sandbox_id, execution.id, after, follow=follow)
    events = await held.enter_async_context(contextlib.aclosing(found))

    async def write() -> AsyncGenerator[bytes, None]:
        writer, known, is_complete = EventWriter(encoding, after), execution, False
        yield writer.start(known)
        async for event in events:
            if event.result is not None:
                is_complete = True
                ended = known.started_at + event.result.duration_ms / 1000
                known = dataclasses.replace(known, result=event.result, finished_at=known.finished_at or ended)
            async with _place(call, event):
                for written in writer.write(event, known):
                    yield written
        if not follow and not is_complete:
            yield writer.catch_up()

    return EventStream(write(), held, heartbeat_s=call.settings.serve.heartbeat_s)


@routes.add(
    f"GET {_PATH}",
    Scope.READ,
    description="Long code and output are cut here, and large displays left out: ask for one execution to have all "
    "that is kept of it.",
    query=schemas.ListExecutions,
    answers=(Answer("A part of the list.", ListOf[RecordedExecution]),),
    errors=(404,),
)
async def list_executions(call: Call) -> Reply:
    """List executions, newest first."""
    query = call.query(schemas.ListExecutions)
    page = await call.service.executions.list(call.caller, sandbox_id(call), offset=query.offset, limit=query.limit)
    return json_reply(translate.render_page(page, translate.render_listed))


@routes.add(
    f"GET {_PATH}/{{execution_id}}",
    Scope.READ,
    query=schemas.Encoded,
    answers=(Answer("The execution.", RecordedExecution),),
    errors=(404,),
)
async def get_execution(call: Call) -> Reply:
    """Show an execution."""
    execution = await call.service.executions.get(call.caller, sandbox_id(call), execution_id(call))
    return json_reply(translate.render_recorded(execution, call.query(schemas.Encoded).encoding))


@routes.add(
    f"GET {_PATH}/{{execution_id}}/events",
    Scope.READ,
    query=schemas.FollowEvents,
    headers={
        "Last-Event-ID": {
            "description": "The last event that you have seen, as browsers send it; wins over `after`.",
            "schema": {"type": "string", "pattern": "^[0-9]{0,15}$"},
        }
    },
    answers=(_STREAM,),
    errors=(404, 502),
)
async def follow_execution(call: Call) -> EventStream:
    """Replay and follow the events of an execution."""
    query = call.query(schemas.FollowEvents)
    sandbox, wanted, after = sandbox_id(call), execution_id(call), _last_seen(call, query.after)
    execution = await call.service.executions.get(call.caller, sandbox, wanted)
    return await _follow(call, execution, after, query.encoding, follow=query.follow)


def _last_seen(call: Call, after: int) -> int:
    text = call.header(b"last-event-id")
    if not text:
        return after
    if not text.isascii() or not text.isdigit() or len(text) > 15:
        raise InvalidRequest("Last-Event-ID must be the id of an event of this execution, which is a number")
    return int(text)


@routes.add(
    f"POST {_PATH}/{{execution_id}}/stdin",
    Scope.RUN,
    description="For an execution that was started with `stdin_open`. The body is the bytes.",
    raw_body="application/octet-stream",
    query=schemas.WriteStdin,
    answers=(Answer("Written.", status=204),),
    errors=(404, 409, 502),
)
async def write_stdin(call: Call) -> Reply:
    """Write to standard input."""
    sandbox, wanted = sandbox_id(call), execution_id(call)
    data = await read_body(call.scope, call.receive, call.settings.serve.body_bytes)
    executions = call.service.executions
    if data:
        await finish_unless_left(call.receive, executions.write_stdin(call.caller, sandbox, wanted, data))
    if call.query(schemas.WriteStdin).eof:
        await executions.close_stdin(call.caller, sandbox, wanted)
    elif not data:
        await executions.get(call.caller, sandbox, wanted)
    return NO_CONTENT


@routes.add(
    f"POST {_PATH}/{{execution_id}}/interrupt",
    Scope.RUN,
    description="As Ctrl-C does. One that has ended is left alone.",
    answers=(Answer("The signal is sent.", status=204),),
    errors=(404, 409, 502),
)
async def interrupt_execution(call: Call) -> Reply:
    """Interrupt an execution."""
    await call.service.executions.interrupt(call.caller, sandbox_id(call), execution_id(call))
    return NO_CONTENT


@routes.add(
    f"POST {_PATH}/{{execution_id}}/kill",
    Scope.RUN,
    description="A kernel that is killed is rolled back to the end of the cell before. One that has ended is "
    "left alone.",
    answers=(Answer("It is killed.", status=204),),
    errors=(404, 409, 502),
)
async def kill_execution(call: Call) -> Reply:
    """Kill an execution."""
    await call.service.executions.kill(call.caller, sandbox_id(call), execution_id(call))
    return NO_CONTENT
