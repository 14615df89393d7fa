"""ChatUI's `/` and `/version`, which need no key, and its counts of executions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from warren.domain.errors import NotFound
from warren.domain.records import Scope
from warren.gateway.api.operations import NO_CONTENT, Answer, Routes, json_reply
from warren.gateway.dialects.chatui import report, schemas, translate
from warren.gateway.dialects.chatui.containers import containers_of
from warren.gateway.dialects.details import IgnoredQuery

if TYPE_CHECKING:
    from starlette.types import ASGIApp

    from warren.gateway.api.operations import Call

_NOTE = "replica-local counters; use /metrics for aggregation across replicas"


routes = Routes("About", query=IgnoredQuery)


@routes.add("GET /", None, answers=(Answer("Where things are.", schemas.About),))
async def about(_call: Call) -> ASGIApp:
    """What this is."""  # noqa: D401 - the summary that the documentation has
    return json_reply(
        {
            # The one field that the original does not have: a person who asks with curl reads whose page this is.
            "service": "Warren",
            "message": "Code Execution Gateway",
            "version": f"v{translate.RELEASE}",
            "execute_endpoint": "/execute",
            "render_endpoint": "/api/render",
            "latex_render_endpoint": "/api/latex/render",
            "version_endpoint": "/version",
        }
    )


@routes.add("GET /version", None, answers=(Answer("Versions and features.", schemas.Version),))
async def get_version(call: Call) -> ASGIApp:
    """The release whose contract this is."""  # noqa: D401 - the summary that the documentation has
    with_pip, render = call.settings.dialects.chatui.allow_pip, call.settings.render
    try:
        await call.service.images.get(render.image)
        with_rendering = True
    except NotFound:
        with_rendering = False
    return json_reply(translate.render_version(render.version, with_pip=with_pip, with_rendering=with_rendering))


@routes.add("GET /metrics/json", Scope.READ, answers=(Answer("Counts since the service began.", schemas.Counts),))
async def get_counts(call: Call) -> ASGIApp:
    """How much was run."""
    return json_reply({"_note": _NOTE, **report.count(containers_of(call.service), call.service.renders)})


@routes.add("GET /internal/auth/apikey", Scope.READ, answers=(Answer("It is.", status=204),))
async def check_key(_call: Call) -> ASGIApp:
    """Whether a key is good."""
    return NO_CONTENT
