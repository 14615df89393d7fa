"""The native API: sandboxes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from warren.domain.errors import Forbidden
from warren.domain.records import Scope
from warren.gateway.api.operations import NO_CONTENT, Answer, Operation, json_reply
from warren.gateway.dialects.native import schemas_sandboxes as schemas
from warren.gateway.dialects.native import translate, translate_requests
from warren.gateway.dialects.native.common import IDEMPOTENCY, idempotency_key, sandbox_id
from warren.gateway.dialects.native.schemas_answers import ListOf, SandboxShown, UsageShown

if TYPE_CHECKING:
    from warren.gateway.api.operations import Call, Reply


async def create_sandbox(call: Call) -> Reply:
    """Make a sandbox, or find the one of the session key."""
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


async def list_sandboxes(call: Call) -> Reply:
    """List the caller's sandboxes, or everybody's."""
    query = call.query(schemas.ListSandboxes)
    principal = call.caller.principal
    if query.everybody and not principal.may(Scope.ADMIN):
        raise Forbidden("only a key with the scope admin sees everybody's sandboxes")
    owner = None if query.everybody else principal.owner
    page = await call.service.sandboxes.list(call.caller, translate_requests.parse_sandbox_query(query, owner))
    return json_reply(translate.render_page(page, translate.render_sandbox))


async def get_sandbox(call: Call) -> Reply:
    """Show a sandbox."""
    return json_reply(translate.render_sandbox(await call.service.sandboxes.get(call.caller, sandbox_id(call))))


async def update_sandbox(call: Call) -> Reply:
    """Change a sandbox."""
    target = sandbox_id(call)
    now = await call.service.sandboxes.get(call.caller, target)
    changes = translate_requests.parse_changes(call.body(schemas.UpdateSandbox), now.limits)
    return json_reply(translate.render_sandbox(await call.service.sandboxes.update(call.caller, target, changes)))


async def delete_sandbox(call: Call) -> Reply:
    """Remove a sandbox."""
    await call.service.sandboxes.delete(call.caller, sandbox_id(call))
    return NO_CONTENT


async def stop_sandbox(call: Call) -> Reply:
    """Stop a sandbox."""
    return json_reply(translate.render_sandbox(await call.service.sandboxes.stop(call.caller, sandbox_id(call))))


async def start_sandbox(call: Call) -> Reply:
    """Start a stopped sandbox."""
    return json_reply(translate.render_sandbox(await call.service.sandboxes.start(call.caller, sandbox_id(call))))


async def measure_sandbox(call: Call) -> Reply:
    """Say what a sandbox uses."""
    return json_reply(UsageShown.render(await call.service.sandboxes.usage(call.caller, sandbox_id(call))))


_ONE = Answer(description="The sandbox.", model=SandboxShown)
_CREATED = {"Location": "Where the sandbox is."}
_EXAMPLE = {"image": "data", "memory_mb": 512, "idle_timeout_seconds": 1800, "session_key": "agent-session-abc"}

OPERATIONS = (
    Operation(
        method="POST",
        path="/sandboxes",
        handler=create_sandbox,
        grant=Scope.RUN,
        tag="Sandboxes",
        summary="Make a sandbox",
        description="The same `session_key` gives the same sandbox, also when many ask at once; a stopped one is "
        "started again.",
        body=schemas.CreateSandbox,
        body_is_optional=True,
        example=_EXAMPLE,
        headers=IDEMPOTENCY,
        answers=(
            Answer(status=201, description="A new sandbox, running.", model=SandboxShown, headers=_CREATED),
            Answer(description="The sandbox of that key.", model=SandboxShown, headers=_CREATED),
        ),
        errors=(404, 409, 501),
    ),
    Operation(
        method="GET",
        path="/sandboxes",
        handler=list_sandboxes,
        grant=Scope.READ,
        tag="Sandboxes",
        summary="List sandboxes, newest first",
        query=schemas.ListSandboxes,
        answers=(Answer(description="A part of the list.", model=ListOf[SandboxShown]),),
    ),
    Operation(
        method="GET",
        path="/sandboxes/{sandbox_id}",
        handler=get_sandbox,
        grant=Scope.READ,
        tag="Sandboxes",
        summary="Show a sandbox",
        answers=(_ONE,),
        errors=(404,),
    ),
    Operation(
        method="PATCH",
        path="/sandboxes/{sandbox_id}",
        handler=update_sandbox,
        grant=Scope.RUN,
        tag="Sandboxes",
        summary="Change a sandbox",
        description="Limits of a running sandbox change at once, where the engine can.",
        body=schemas.UpdateSandbox,
        example={"idle_timeout_seconds": 600, "metadata": {"agent": "planner"}},
        answers=(_ONE,),
        errors=(404, 409, 501, 502),
    ),
    Operation(
        method="DELETE",
        path="/sandboxes/{sandbox_id}",
        handler=delete_sandbox,
        grant=Scope.RUN,
        tag="Sandboxes",
        summary="Remove a sandbox, workspace and all",
        answers=(Answer(status=204, description="It is gone."),),
        errors=(404, 409),
    ),
    Operation(
        method="POST",
        path="/sandboxes/{sandbox_id}/stop",
        handler=stop_sandbox,
        grant=Scope.RUN,
        tag="Sandboxes",
        summary="Stop a sandbox",
        description="Its processes end and its memory is free; a persistent workspace stays.",
        answers=(_ONE,),
        errors=(404, 409, 502),
    ),
    *(
        Operation(
            method="POST",
            path=f"/sandboxes/{{sandbox_id}}/{verb}",
            handler=start_sandbox,
            grant=Scope.RUN,
            tag="Sandboxes",
            summary=summary,
            description="Executions and file operations start a stopped sandbox by themselves.",
            answers=(_ONE,),
            errors=(404, 409, 502),
        )
        for verb, summary in (("start", "Start a stopped sandbox"), ("resume", "The same as start"))
    ),
    Operation(
        method="GET",
        path="/sandboxes/{sandbox_id}/usage",
        handler=measure_sandbox,
        grant=Scope.READ,
        tag="Sandboxes",
        summary="Measure a sandbox",
        answers=(Answer(description="What it uses now.", model=UsageShown),),
        errors=(404, 409, 502),
    ),
)
