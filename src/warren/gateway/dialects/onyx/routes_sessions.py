"""Onyx's sessions over HTTP: a workspace that stays, for bash and for Python programs."""

from __future__ import annotations

import contextlib
import secrets
import time
from typing import TYPE_CHECKING

import anyio

from warren.core.executions.jobs import Job
from warren.core.sandboxes.changes import SandboxChanges
from warren.core.sandboxes.sandboxes import NewSandbox
from warren.domain.egress import Egress, EgressMode
from warren.domain.errors import Error
from warren.domain.records import Scope
from warren.domain.values import Storage
from warren.gateway.api.large_responses import answer_with, measure_result
from warren.gateway.api.operations import NO_CONTENT, Answer, Routes, json_reply
from warren.gateway.api.streaming import finish_unless_left
from warren.gateway.dialects.details import IgnoredQuery, Refused
from warren.gateway.dialects.onyx import common, schemas, translate
from warren.gateway.dialects.onyx.common import EVENTS, answer, follow

if TYPE_CHECKING:
    from starlette.types import ASGIApp

    from warren.domain.records import Sandbox
    from warren.gateway.api.operations import Call

_PATH = "/v1/sessions/{session_id}"


routes = Routes("Sessions", query=IgnoredQuery)


@routes.add(
    f"POST {_PATH}/bash",
    Scope.RUN,
    description="With a bash of its own. When its time is over, it and all that it started is killed.",
    body=schemas.Bash,
    example={"cmd": "ls -l"},
    answers=(Answer("How it ended.", schemas.Ran),),
    errors=(404, 422, 429, 503),
)
async def run_bash(call: Call) -> ASGIApp:
    """Run a command in a session."""
    body, settings = call.body(schemas.Bash), call.settings.dialects.onyx
    translate.check_timeout(body.timeout_ms, settings)
    async with common.session(call) as sandbox:
        new = translate.parse_command(body, settings)
        work = call.service.executions.run(call.caller, sandbox.id, new)
        execution = await finish_unless_left(call.receive, work)
    result = execution.result
    assert result is not None
    limit = settings.output_bytes
    return answer_with(call, measure_result(result), lambda: json_reply(translate.render_ran(result, limit)))


@routes.add(
    f"POST {_PATH}/python",
    Scope.RUN,
    description="Files stay, variables do not. `files` are those that the client has already: what is still as "
    "they are is not among the files of the answer, which are those changed since the last program.",
    body=schemas.Execute,
    example={"code": "open('a.txt', 'w').write('kept')"},
    answers=(Answer("How it ended, and what it left.", schemas.Executed),),
    errors=(404, 422, 429, 503),
)
async def run_python(call: Call) -> ASGIApp:
    """Run a Python program in a session."""
    async with common.session(call) as sandbox:
        return await answer(call, await _parse(call, sandbox))


@routes.add(
    f"POST {_PATH}/python/stream",
    Scope.RUN,
    description=EVENTS,
    body=schemas.Execute,
    example={"code": "print('hello')"},
    answers=(Answer(EVENTS, content_type="text/event-stream"),),
    errors=(404, 422, 429, 503),
)
async def run_python_stream(call: Call) -> ASGIApp:
    """Run a Python program in a session, and follow it."""
    async with contextlib.AsyncExitStack() as held, common.session(call) as sandbox:
        return await follow(call, await _parse(call, sandbox), held)


@routes.add(
    "POST /v1/sessions",
    Scope.RUN,
    body=schemas.CreateSession,
    example={"ttl_seconds": 900},
    answers=(Answer("The session.", schemas.Session, status=201),),
    errors=(404, 422, 429, 501, 503),
)
async def create_session(call: Call) -> ASGIApp:
    """Make a session."""
    body = call.body(schemas.CreateSession)
    egress = _choose_egress(call, body.network_enabled)
    inputs = await common.resolve(call, body.files, reserved=False)
    session_id = f"code-session-{secrets.token_hex(16)}"
    new = NewSandbox(
        image=common.image(call),
        limits=common.limits(call),
        storage=Storage.EPHEMERAL,
        egress=egress,
        metadata={"dialect": "onyx"},
        session_key=common.session_key(session_id),
        # It lives as long as was asked for, used or not.
        idle_timeout_s=0,
        max_lifetime_s=body.ttl_seconds,
    )
    sandbox, _ = await call.service.sandboxes.create(call.caller, new)
    try:
        await call.service.jobs.stage(call.caller, sandbox.id, inputs)
    except BaseException:
        with anyio.CancelScope(shield=True), contextlib.suppress(Error):
            await call.service.sandboxes.delete(call.caller, sandbox.id)
        raise
    return json_reply(translate.render_session(sandbox, session_id), 201)


def _choose_egress(call: Call, wanted: bool | None) -> Egress | None:
    """Return what a session may reach; as every other sandbox where nothing was said. Raises Refused."""
    if wanted is None:
        return None
    mode = EgressMode(call.settings.dialects.onyx.network if wanted else "none")
    egress = call.service.policy.lower_egress(call.caller.principal.tenant, Egress(mode=mode))
    if wanted and egress.mode is EgressMode.NONE:
        raise Refused(501, "Sandboxes have no network here: leave network_enabled out, or set it to false.")
    return egress


@routes.add(f"DELETE {_PATH}", Scope.RUN, answers=(Answer("It is gone.", status=204),), errors=(404,))
async def delete_session(call: Call) -> ASGIApp:
    """End a session."""
    async with common.session(call) as sandbox:
        await call.service.sandboxes.delete(call.caller, sandbox.id)
    return NO_CONTENT


@routes.add(
    f"POST {_PATH}/keepalive",
    Scope.RUN,
    body=schemas.KeepAlive,
    example={"ttl_seconds": 900},
    answers=(Answer("The session.", schemas.Session),),
    errors=(404, 422),
)
async def keep_alive(call: Call) -> ASGIApp:
    """Let a session live longer."""
    body = call.body(schemas.KeepAlive)
    async with common.session(call) as sandbox:
        lifetime_s = time.time() - sandbox.created_at + body.ttl_seconds
        changed = await call.service.sandboxes.update(
            call.caller, sandbox.id, SandboxChanges(max_lifetime_s=lifetime_s)
        )
    return json_reply(translate.render_session(changed, call.params["session_id"]))


async def _parse(call: Call, sandbox: Sandbox) -> Job:
    body, settings = call.body(schemas.Execute), call.settings.dialects.onyx
    translate.check_timeout(body.timeout_ms, settings)
    return Job(
        request=translate.parse_program(body, settings),
        sandbox_id=sandbox.id,
        inputs=await common.resolve(call, body.files, reserved=False, skip_gone=True),
        ttl_s=settings.file_ttl_s,
    )
