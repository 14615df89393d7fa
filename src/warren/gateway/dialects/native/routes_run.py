"""The native API: one run in a sandbox of its own, which is gone afterwards."""

from __future__ import annotations

from typing import TYPE_CHECKING

from warren.domain.records import Scope
from warren.gateway.api.large_responses import answer_with, measure_result
from warren.gateway.api.operations import Answer, Routes, json_reply
from warren.gateway.api.streaming import finish_unless_left
from warren.gateway.dialects.native import translate, translate_requests
from warren.gateway.dialects.native.schemas_answers import RunShown
from warren.gateway.dialects.native.schemas_executions import Run

if TYPE_CHECKING:
    from starlette.types import ASGIApp

    from warren.gateway.api.operations import Call


routes = Routes("One-shot")


@routes.add(
    "POST /run",
    Scope.RUN,
    description="Files go in with the request, and the files that it created or modified come back with the "
    "answer. A client that goes away ends it.",
    body=Run,
    example={"code": 'print(open("in.txt").read().upper())', "files": [{"path": "in.txt", "text": "hello"}]},
    answers=(Answer("How it ended, and what it left.", RunShown),),
    errors=(404, 409, 501, 502),
)
async def run_once(call: Call) -> ASGIApp:
    """Run something in a fresh sandbox that is gone afterwards."""
    body = call.body(Run)
    shot = translate_requests.parse_one_shot(body, call.service.policy.limits_of(call.caller.principal.tenant))
    result = await finish_unless_left(call.receive, call.service.oneshots.run(call.caller, shot))
    size = measure_result(result.execution.result) + sum(len(file.content) for file in result.files)
    return answer_with(call, size, lambda: json_reply(translate.render_one_shot(result, body.encoding)))
