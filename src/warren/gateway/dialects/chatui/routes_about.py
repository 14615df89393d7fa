"""ChatUI's `/` and `/version`, which need no key, and its counts of executions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from warren.domain.errors import NotFound
from warren.domain.records import Scope
from warren.gateway.api.operations import NO_CONTENT, Answer, Operation, json_reply
from warren.gateway.dialects.chatui import report, schemas, translate
from warren.gateway.dialects.chatui.containers import containers_of

if TYPE_CHECKING:
    from starlette.types import ASGIApp

    from warren.gateway.api.operations import Call

_TAG = "About"
_NOTE = "replica-local counters; use /metrics for aggregation across replicas"


async def about(_call: Call) -> ASGIApp:
    """Describe the gateway to programs; browsers get Warren's own page."""
    return json_reply(
        {
            "message": "Code Execution Gateway",
            "version": f"v{translate.RELEASE}",
            "execute_endpoint": "/execute",
            "render_endpoint": "/api/render",
            "latex_render_endpoint": "/api/latex/render",
            "version_endpoint": "/version",
        }
    )


async def get_version(call: Call) -> ASGIApp:
    """Return the release of the original whose contract this is, and the available features."""
    with_pip, render = call.settings.dialects.chatui.allow_pip, call.settings.render
    try:
        await call.service.images.get(render.image)
        with_rendering = True
    except NotFound:
        with_rendering = False
    return json_reply(translate.render_version(render.version, with_pip=with_pip, with_rendering=with_rendering))


async def get_counts(call: Call) -> ASGIApp:
    """Return counts of executions since the service started."""
    return json_reply({"_note": _NOTE, **report.count(containers_of(call.service), call.service.renders)})


async def check_key(_call: Call) -> ASGIApp:
    """Confirm that a key is valid, for a proxy that asks."""
    return NO_CONTENT


OPERATIONS = (
    Operation(
        method="GET",
        path="/",
        handler=about,
        grant=None,
        tag=_TAG,
        summary="What this is",
        query=schemas.Nothing,
        answers=(Answer(description="Where things are.", model=schemas.About),),
    ),
    Operation(
        method="GET",
        path="/version",
        handler=get_version,
        grant=None,
        tag=_TAG,
        summary="The release whose contract this is",
        query=schemas.Nothing,
        answers=(Answer(description="Versions and features.", model=schemas.Version),),
    ),
    Operation(
        method="GET",
        path="/metrics/json",
        handler=get_counts,
        grant=Scope.READ,
        tag=_TAG,
        summary="How much was run",
        query=schemas.Nothing,
        answers=(Answer(description="Counts since the service began.", model=schemas.Counts),),
    ),
    Operation(
        method="GET",
        path="/internal/auth/apikey",
        handler=check_key,
        grant=Scope.READ,
        tag=_TAG,
        summary="Whether a key is good",
        query=schemas.Nothing,
        answers=(Answer(status=204, description="It is."),),
    ),
)
