"""otari's sessions over HTTP: make, show and end them, and use their tools."""

from __future__ import annotations

import secrets
import time
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ValidationError

from warren.core.sandboxes.sandboxes import NewSandbox
from warren.domain.errors import Conflict, NotFound, Overloaded, QuotaExceeded
from warren.domain.records import Scope
from warren.domain.values import Storage
from warren.gateway.api.large_responses import answer_with
from warren.gateway.api.operations import NO_CONTENT, Answer, Routes, json_reply
from warren.gateway.api.problems import retry_after
from warren.gateway.api.streaming import finish_unless_left
from warren.gateway.dialects import details
from warren.gateway.dialects.details import IgnoredQuery, Refused, list_errors, too_large
from warren.gateway.dialects.dialect import Dialect
from warren.gateway.dialects.otari import anthropic, editor, report, routes_files, routes_tools, schemas, translate
from warren.gateway.dialects.otari.sessions import session_id, unknown, using

if TYPE_CHECKING:
    from typing import TypeVar

    from starlette.types import ASGIApp

    from warren.core.executions.executions import NewExecution
    from warren.domain.values import ExecResult
    from warren.gateway.api.operations import Call
    from warren.gateway.dialects.otari.translate import Ran

    M = TypeVar("M", bound=BaseModel)

_FORMAT = "result_format"

_PATH = "/sessions/{session_id}"
_EXAMPLE = {"tool": "code_execution", "input": {"code": "print(6 * 7)"}}

routes = Routes("Sessions", query=IgnoredQuery)


@routes.add(
    f"POST {_PATH}/exec",
    Scope.RUN,
    description="Python with variables that stay, a shell, or a text editor. What a program does wrong is a "
    "result: `return_code` and `stderr` say so, and after a timeout all that was written is there.",
    body=schemas.Exec,
    example=_EXAMPLE,
    answers=(Answer("What it did.", schemas.ExecAnswer),),
    errors=(404, 422, 503),
)
async def execute(call: Call) -> ASGIApp:
    """Use a tool."""
    since = time.monotonic()
    body = call.body(schemas.Exec)
    tool_use_id = body.tool_use_id or f"srvtoolu_{secrets.token_hex(12)}"
    async with using(call) as live:
        is_strict = live.sandbox.metadata.get(_FORMAT) == "anthropic"
        ran, content = await finish_unless_left(call.receive, _TOOLS[body.tool](call, live.id, body, is_strict))
    duration_ms = int((time.monotonic() - since) * 1000)
    return answer_with(
        call,
        translate.measure(ran, content, tool_use_id),
        lambda: json_reply(translate.render_exec(ran, content, body.tool, tool_use_id, duration_ms)),
    )


@routes.add(
    "POST /sessions",
    Scope.RUN,
    body=schemas.CreateSession,
    body_is_optional=True,
    answers=(Answer("The session.", schemas.Session, status=201),),
    errors=(422, 503),
)
async def create_session(call: Call) -> ASGIApp:
    """Make a session."""
    body, settings = call.body(schemas.CreateSession), call.settings.dialects.otari
    for name in ("idle_timeout_seconds", "max_lifetime_seconds"):
        asked, most = getattr(body, name), settings.max_lifetime_s
        if asked is not None and asked > most:
            raise Refused(422, [too_large(name, asked, most)])
    new = NewSandbox(
        image=translate.choose_image(body.image, settings),
        limits=call.service.policy.limits_with_memory(call.caller.principal.tenant, settings.memory_bytes),
        # As the original: an idle session is deleted, so that no client finds it without its variables.
        storage=Storage.EPHEMERAL,
        metadata={**report.DIALECT, **({} if body.result_format == "otari" else {_FORMAT: body.result_format})},
        idle_timeout_s=body.idle_timeout_seconds or settings.idle_timeout_s,
        max_lifetime_s=body.max_lifetime_seconds or settings.max_lifetime_s,
    )
    try:
        sandbox, _ = await call.service.sandboxes.create(call.caller, new)
    except (QuotaExceeded, Overloaded) as error:
        raise await _full(call, error) from error
    # Only for a client that gave a hint: which image it has.
    shown = translate.render_session(sandbox) | ({} if body.image is None else {"image": sandbox.image})
    return json_reply(shown, 201)


async def _full(call: Call, error: QuotaExceeded | Overloaded) -> Refused:
    """Translate a quota of sandboxes to the message that clients know for too many sessions."""
    retry = retry_after(error.retry_after_s)
    policy, owner = call.service.policy, call.caller.principal.owner
    for held, most in (
        (await call.service.store.holding(owner), policy.own),
        (await call.service.store.holding(None), policy.everybody),
    ):
        for have, limit in ((held.active, most.active), (held.sandboxes, most.sandboxes)):
            if limit and have >= limit:
                return Refused(503, f"sandbox holds {have} sessions (max={limit})", retry)
    return Refused(503, str(error), retry)


@routes.add(f"GET {_PATH}", Scope.READ, answers=(Answer("The session.", schemas.Session),), errors=(404, 422))
async def get_session(call: Call) -> ASGIApp:
    """Show a session."""
    session = session_id(call)
    try:
        return json_reply(translate.render_session(await call.service.sandboxes.get(call.caller, session)))
    except NotFound:
        raise unknown(session) from None


@routes.add(f"DELETE {_PATH}", Scope.RUN, answers=(Answer("It is gone, or was not there.", status=204),), errors=(422,))
async def delete_session(call: Call) -> ASGIApp:
    """End a session."""
    try:
        await call.service.sandboxes.delete(call.caller, session_id(call))
    except NotFound:
        pass
    except Refused as refused:
        if refused.status != 404:
            raise
    return NO_CONTENT


async def _run_python(call: Call, session: str, body: schemas.Exec, is_strict: bool) -> tuple[Ran, dict[str, Any]]:
    code = _parse_input(schemas.CodeInput, body).code
    new = translate.parse_code(code, body.timeout_seconds, call.settings.dialects.otari.output_bytes)
    ran = translate.read_python(await _run(call, session, new), body.timeout_seconds)
    return ran, anthropic.render_program(ran, body.tool) if is_strict else translate.render_result(ran)


async def _run_shell(call: Call, session: str, body: schemas.Exec, is_strict: bool) -> tuple[Ran, dict[str, Any]]:
    command = _parse_input(schemas.BashInput, body).command
    new = translate.parse_command(command, body.timeout_seconds, call.settings.dialects.otari.output_bytes)
    ran = translate.read_shell(await _run(call, session, new), body.timeout_seconds)
    return ran, anthropic.render_program(ran, body.tool) if is_strict else translate.render_result(ran)


async def _edit(call: Call, session: str, body: schemas.Exec, is_strict: bool) -> tuple[Ran, dict[str, Any]]:
    asked = _parse_input(schemas.EditorInput, body)
    edited = await editor.edit(call, session, asked, overwrite=is_strict)
    ran = edited.read()
    return ran, anthropic.render_edit(edited) if is_strict else translate.render_result(ran)


_TOOLS = {
    "code_execution": _run_python,
    "bash_code_execution": _run_shell,
    "text_editor_code_execution": _edit,
}


async def _run(call: Call, session: str, new: NewExecution) -> ExecResult:
    try:
        execution = await call.service.executions.run(call.caller, session, new)
    except (Conflict, QuotaExceeded) as error:
        # Too many at once, in this session or of this client: the contract has one status for both.
        raise Refused(503, str(error), retry_after(error.retry_after_s)) from error
    assert execution.result is not None
    return execution.result


def _parse_input(model: type[M], body: schemas.Exec) -> M:
    """Read the input of a tool. Raises Refused, in a shape that the original has only here."""
    try:
        return model.model_validate(body.input)
    except ValidationError as exc:
        raise Refused(422, list_errors(exc, (), with_url=True)) from None


DIALECT = Dialect(
    name="otari",
    title="otari",
    about="Sessions as otari's sandbox container serves them: three tools, files, and tools of the client's own.",
    operations=(*routes, *routes_files.routes, *routes_tools.routes),
    parse_body=details.parse_body,
    parse_query=details.parse_query,
    respond=details.respond,
    shared_paths=frozenset({"/health"}),
    report=report.OtariReport,
)
