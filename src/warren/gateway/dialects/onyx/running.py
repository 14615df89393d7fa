"""Answers to a program that runs: whole when it has ended, or as events while it does."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from warren.gateway.api.large_responses import answer_with, measure_result
from warren.gateway.api.operations import json_reply
from warren.gateway.api.streaming import EventStream, encode_event, finish_unless_left
from warren.gateway.dialects.onyx import translate

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from starlette.types import ASGIApp

    from warren.core.executions.jobs import Job
    from warren.gateway.api.operations import Call
    from warren.gateway.api.problems import Problem

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
