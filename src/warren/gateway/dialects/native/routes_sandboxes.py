"""The native API: sandboxes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from warren.domain.errors import Forbidden
from warren.domain.records import Scope
from warren.gateway.api.operations import NO_CONTENT, Answer, Routes, json_reply
from warren.gateway.dialects.native import schemas_sandboxes as schemas
from warren.gateway.dialects.native import translate, translate_requests
from warren.gateway.dialects.native.common import IDEMPOTENCY, idempotency_key, sandbox_id
from warren.gateway.dialects.native.schemas_answers import ListOf, SandboxShown, UsageShown

if TYPE_CHECKING:
    from warren.gateway.api.operations import Call, Reply

_ONE = Answer("The sandbox.", SandboxShown)
_CREATED = {"Location": "Where the sandbox is."}
_EXAMPLE = {"image": "data", "memory_mb": 512, "idle_timeout_seconds": 1800, "session_key": "agent-session-abc"}

_STARTED = "Executions and file operations start a stopped sandbox by themselves."

routes = Routes("Sandboxes")


@routes.add(
    "POST /sandboxes",
    Scope.RUN,
    description="The same `session_key` gives the same sandbox, also when many ask at once; a stopped one is "
    "started again.",
    body=schemas.CreateSandbox,
    body_is_optional=True,
    example=_EXAMPLE,
    headers=IDEMPOTENCY,
    answers=(
        Answer("A new sandbox, running.", SandboxShown, status=201, headers=_CREATED),
        Answer("The sandbox of that key.", SandboxShown, headers=_CREATED),
    ),
    errors=(404, 409, 501),
)
async def create_sandbox(call: Call) -> Reply:
    """Make a sandbox."""
    body = call.body(schemas.CreateSandbox)
    new = translate_requests.parse_new_sandbox(
        body, call.service.policy.limits_of(call.caller.principal.tenant), idempotency_key(call)
    )
    if body.skill_ids:
        sandbox, is_new = await call.service.skill_installation.create(call.caller, new, body.skill_ids)
    else:
        sandbox, is_new = await call.service.sandboxes.create(call.caller, new)
    location = (b"location", f"/api/v1/sandboxes/{sandbox.id}".encode())
    return json_reply(translate.render_sandbox(sandbox), 201 if is_new else 200, location)


@routes.add(
    "GET /sandboxes",
    Scope.READ,
    query=schemas.ListSandboxes,
    answers=(Answer("A part of the list.", ListOf[SandboxShown]),),
)
async def list_sandboxes(call: Call) -> Reply:
    """List sandboxes, newest first."""
    query = call.query(schemas.ListSandboxes)
    principal = call.caller.principal
    if query.everybody and not principal.may(Scope.ADMIN):
        raise Forbidden("only a key with the scope admin sees everybody's sandboxes")
    owner = None if query.everybody else principal.owner
    page = await call.service.sandboxes.list(call.caller, translate_requests.parse_sandbox_query(query, owner))
    return json_reply(translate.render_page(page, translate.render_sandbox))


@routes.add("GET /sandboxes/{sandbox_id}", Scope.READ, answers=(_ONE,), errors=(404,))
async def get_sandbox(call: Call) -> Reply:
    """Show a sandbox."""
    return json_reply(translate.render_sandbox(await call.service.sandboxes.get(call.caller, sandbox_id(call))))


@routes.add(
    "PATCH /sandboxes/{sandbox_id}",
    Scope.RUN,
    description="Limits of a running sandbox change at once, where the engine can.",
    body=schemas.UpdateSandbox,
    example={"idle_timeout_seconds": 600, "metadata": {"agent": "planner"}},
    answers=(_ONE,),
    errors=(404, 409, 501, 502),
)
async def update_sandbox(call: Call) -> Reply:
    """Change a sandbox."""
    target = sandbox_id(call)
    now = await call.service.sandboxes.get(call.caller, target)
    changes = translate_requests.parse_changes(call.body(schemas.UpdateSandbox), now.limits)
    return json_reply(translate.render_sandbox(await call.service.sandboxes.update(call.caller, target, changes)))


@routes.add(
    "DELETE /sandboxes/{sandbox_id}",
    Scope.RUN,
    query=schemas.DeleteSandbox,
    answers=(Answer("It is gone.", status=204),),
    errors=(404, 409),
)
async def delete_sandbox(call: Call) -> Reply:
    """Remove a sandbox, workspace and all."""
    sandboxes, query = call.service.sandboxes, call.query(schemas.DeleteSandbox)
    await (sandboxes.forget if query.forget else sandboxes.delete)(call.caller, sandbox_id(call))
    return NO_CONTENT


@routes.add(
    "POST /sandboxes/{sandbox_id}/stop",
    Scope.RUN,
    description="Its processes end and its memory is free; a persistent workspace stays.",
    answers=(_ONE,),
    errors=(404, 409, 502),
)
async def stop_sandbox(call: Call) -> Reply:
    """Stop a sandbox."""
    return json_reply(translate.render_sandbox(await call.service.sandboxes.stop(call.caller, sandbox_id(call))))


@routes.add(
    "POST /sandboxes/{sandbox_id}/start",
    Scope.RUN,
    description=_STARTED,
    answers=(_ONE,),
    errors=(404, 409, 502),
)
async def start_sandbox(call: Call) -> Reply:
    """Start a stopped sandbox."""
    return json_reply(translate.render_sandbox(await call.service.sandboxes.start(call.caller, sandbox_id(call))))


@routes.add(
    "POST /sandboxes/{sandbox_id}/resume", Scope.RUN, description=_STARTED, answers=(_ONE,), errors=(404, 409, 502)
)
async def start_sandbox_again(call: Call) -> Reply:
    """The same as start."""  # noqa: D401 - the summary that the documentation has
    return await start_sandbox(call)


@routes.add(
    "GET /sandboxes/{sandbox_id}/usage",
    Scope.READ,
    answers=(Answer("What it uses now.", UsageShown),),
    errors=(404, 409, 502),
)
async def measure_sandbox(call: Call) -> Reply:
    """Measure a sandbox."""
    return json_reply(UsageShown.render(await call.service.sandboxes.usage(call.caller, sandbox_id(call))))
