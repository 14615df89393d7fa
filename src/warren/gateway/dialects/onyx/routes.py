"""Onyx's code interpreter over HTTP: run a program with files, whole or followed."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from warren.core.executions.jobs import Job
from warren.domain.records import Scope
from warren.gateway.api.operations import Answer, Operation
from warren.gateway.dialects import details
from warren.gateway.dialects.dialect import Dialect
from warren.gateway.dialects.onyx import common, routes_files, routes_session_files, routes_sessions, schemas, translate
from warren.gateway.dialects.onyx.report import OnyxReport
from warren.gateway.dialects.onyx.running import EVENTS, answer, follow

if TYPE_CHECKING:
    from starlette.types import ASGIApp

    from warren.gateway.api.operations import Call

_TAG = "Programs"


async def execute(call: Call) -> ASGIApp:
    """Run a program to its end."""
    return await answer(call, await _parse(call))


async def execute_stream(call: Call) -> ASGIApp:
    """Run a program and answer with its output while it runs."""
    async with contextlib.AsyncExitStack() as held:
        return await follow(call, await _parse(call), held)


async def _parse(call: Call) -> Job:
    body, settings = call.body(schemas.Execute), call.settings.dialects.onyx
    translate.check_timeout(body.timeout_ms, settings)
    return Job(
        request=translate.parse_program(body, settings),
        inputs=await common.resolve(call, body.files, reserved=True),
        image=common.image(call),
        limits=common.limits(call),
        ttl_s=settings.file_ttl_s,
        hidden=frozenset({translate.ENTRY}),
    )


_EXAMPLE = {"code": "print('Hello, World!')\n2 + 2"}

OPERATIONS = (
    Operation(
        method="POST",
        path="/v1/execute/stream",
        handler=execute_stream,
        grant=Scope.RUN,
        tag=_TAG,
        summary="Run a Python program, and follow it",
        description=EVENTS,
        body=schemas.Execute,
        query=schemas.Nothing,
        example=_EXAMPLE,
        answers=(Answer(description=EVENTS, content_type="text/event-stream"),),
        errors=(404, 422, 429, 503),
    ),
    Operation(
        method="POST",
        path="/v1/execute",
        handler=execute,
        grant=Scope.RUN,
        tag=_TAG,
        summary="Run a Python program",
        description="In a sandbox of its own. Stored files go in by their ids; what it makes or changes is stored.",
        body=schemas.Execute,
        query=schemas.Nothing,
        example=_EXAMPLE,
        answers=(Answer(description="How it ended, and what it left.", model=schemas.Executed),),
        errors=(404, 422, 429, 503),
    ),
    *routes_files.OPERATIONS,
    *routes_sessions.OPERATIONS,
    *routes_session_files.OPERATIONS,
)

DIALECT = Dialect(
    name="onyx",
    title="Onyx code interpreter",
    about="Python programs with files, and sessions, as Onyx's code interpreter serves them.",
    operations=OPERATIONS,
    parse_body=details.parse_body,
    parse_query=details.parse_query,
    respond=common.respond,
    shared_paths=frozenset({"/health"}),
    report=OnyxReport,
)
