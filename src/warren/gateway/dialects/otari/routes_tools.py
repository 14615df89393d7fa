"""Tools of the client's own, which the code of a session may call."""

from __future__ import annotations

from typing import TYPE_CHECKING

from warren.core.callbacks.callbacks import NewCallbacks, check_tool_name
from warren.domain.errors import InvalidRequest
from warren.domain.records import Scope
from warren.gateway.api.operations import Answer, Routes, json_reply
from warren.gateway.dialects.details import IgnoredQuery, Refused
from warren.gateway.dialects.otari import schemas
from warren.gateway.dialects.otari.sessions import using

if TYPE_CHECKING:
    from starlette.types import ASGIApp

    from warren.gateway.api.operations import Call

_FORWARDED = (b"x-forwarded-for", b"forwarded", b"x-real-ip", b"via")


routes = Routes("Tools", query=IgnoredQuery)


@routes.add(
    "POST /sessions/{session_id}/programmatic-tools/register",
    Scope.RUN,
    description="Code imports them from `_platform_tools`. A call is made by the service, so it needs no network "
    "in the session, and the token never gets there.",
    body=schemas.Register,
    example={
        "callback_url": "https://gateway.example.com/tools/call",
        "token": "secret",
        "tools": [{"name": "look_up", "doc": "Look something up."}],
    },
    answers=(Answer("Code can import them.", schemas.Registered),),
    errors=(404, 422),
)
async def register_tools(call: Call) -> ASGIApp:
    """Offer tools to the code of a session."""
    body = call.body(schemas.Register)
    new = NewCallbacks(
        url=body.callback_url,
        token=body.token,
        tools={tool.name: tool.doc for tool in body.tools},
        timeout_s=body.timeout_seconds,
        peer=_find_peer(call),
    )
    async with using(call) as live:
        try:
            _check(body)
            path = await call.service.callbacks.register(call.caller, live.id, new)
        except InvalidRequest as error:
            raise Refused(422, str(error)) from error
    return json_reply({"stub_path": path, "tool_count": len(body.tools)})


def _check(body: schemas.Register) -> None:
    for name in ("callback_url", "token"):
        if not getattr(body, name).strip():
            raise Refused(422, f"{name} must not be empty")
    if not body.token.isascii() or not body.token.isprintable():
        raise Refused(422, "token must be printable ASCII, as a header can hold it")
    seen: set[str] = set()
    for tool in body.tools:
        check_tool_name(tool.name)
        if tool.name in seen:
            raise Refused(422, f"duplicate tool name: {tool.name!r}")
        seen.add(tool.name)


def _find_peer(call: Call) -> str:
    """Return the client's address where it is certain: behind an unknown proxy, it would be the proxy's."""
    is_direct = not any(call.header(name) for name in _FORWARDED)
    return call.caller.address if is_direct or call.settings.serve.trusted_proxies else ""
