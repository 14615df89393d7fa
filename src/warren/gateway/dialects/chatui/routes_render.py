"""ChatUI's slides: there is nothing here that renders them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from warren.gateway.dialects.chatui import schemas
from warren.gateway.dialects.details import Refused
from warren.gateway.operations import Answer, Operation
from warren.records import Scope

if TYPE_CHECKING:
    from starlette.types import ASGIApp

    from warren.gateway.operations import Call


async def render_slides(_call: Call) -> ASGIApp:
    """Say that it cannot be done."""
    raise Refused(501, "Slide rendering is not available on this service: `/version` lists what is, under `features`.")


OPERATIONS = tuple(
    Operation(
        method="POST",
        path=path,
        handler=render_slides,
        grant=Scope.RUN,
        tag="Rendering",
        summary="Render slides",
        raw_body="application/json",
        query=schemas.Nothing,
        answers=(Answer(status=501, description="Not on this service.", content_type="application/json"),),
    )
    for path in ("/api/render", "/api/v1/render")
)
