"""Onyx's code interpreter over HTTP: run a program with files, whole or followed."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from warren.core.executions.jobs import Job
from warren.domain.records import Scope
from warren.gateway.api.operations import Answer, Routes
from warren.gateway.dialects import details
from warren.gateway.dialects.details import IgnoredQuery
from warren.gateway.dialects.dialect import Dialect, HealthReport
from warren.gateway.dialects.onyx import common, routes_files, routes_session_files, routes_sessions, schemas, translate
from warren.gateway.dialects.onyx.common import EVENTS, answer, follow

if TYPE_CHECKING:
    from collections.abc import Mapping

    from starlette.types import ASGIApp

    from warren.gateway.api.operations import Call

VERSION = "0.5.0"
"""Of the API that is served: clients use sessions only from 0.4.0 on. Our own is in `/healthz`."""


class OnyxReport(HealthReport):
    """The report of one service."""

    def health(self) -> Mapping[str, Any]:
        """Return the version by which clients choose what they use."""
        return {"version": VERSION}


_EXAMPLE = {"code": "print('Hello, World!')\n2 + 2"}

routes = Routes("Programs", query=IgnoredQuery)


@routes.add(
    "POST /v1/execute/stream",
    Scope.RUN,
    description=EVENTS,
    body=schemas.Execute,
    example=_EXAMPLE,
    answers=(Answer(EVENTS, content_type="text/event-stream"),),
    errors=(404, 422, 429, 503),
)
async def execute_stream(call: Call) -> ASGIApp:
    """Run a Python program, and follow it."""
    async with contextlib.AsyncExitStack() as held:
        return await follow(call, await _parse(call), held)


@routes.add(
    "POST /v1/execute",
    Scope.RUN,
    description="In a sandbox of its own. Stored files go in by their ids; what it makes or changes is stored.",
    body=schemas.Execute,
    example=_EXAMPLE,
    answers=(Answer("How it ended, and what it left.", schemas.Executed),),
    errors=(404, 422, 429, 503),
)
async def execute(call: Call) -> ASGIApp:
    """Run a Python program."""
    return await answer(call, await _parse(call))


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


DIALECT = Dialect(
    name="onyx",
    title="Onyx code interpreter",
    about="Python programs with files, and sessions, as Onyx's code interpreter serves them.",
    operations=(*routes, *routes_files.routes, *routes_sessions.routes, *routes_session_files.routes),
    parse_body=details.parse_body,
    parse_query=details.parse_query,
    respond=common.respond,
    shared_paths=frozenset({"/health"}),
    report=OnyxReport,
)
