"""The native API: the images that sandboxes are made from, and building them."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from pydantic import Field

from warren.domain.records import Scope
from warren.gateway.api.operations import Answer, Routes, json_reply
from warren.gateway.api.streaming import EventStream, encode_event
from warren.gateway.dialects.native import translate
from warren.gateway.dialects.native.schemas import Query
from warren.gateway.dialects.native.schemas_answers import Freed, ImageShown, ImagesShown

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from starlette.types import ASGIApp

    from warren.core.image_builds import Build
    from warren.gateway.api.operations import Call, Reply

_PATH = "/images/{image}"
_EVENTS = (
    "`progress` (`phase`, `detail`, `done`, `total`) for each step, then `result` (the image), or `error` (a problem)."
)


class RemoveImage(Query):
    """What of an image to remove."""

    stale_only: bool = Field(default=False, description="Only builds of earlier versions of it.")


routes = Routes("Images")


@routes.add("GET /images", Scope.READ, answers=(Answer("Every image, and whether it is built.", ImagesShown),))
async def list_images(call: Call) -> Reply:
    """List the images."""
    builds = call.service.image_builds
    listed = await call.service.images.list()
    return json_reply(
        {
            "items": [
                translate.render_image(spec, status, call.settings.image, builds.last(spec.name))
                for spec, status in listed
            ]
        }
    )


@routes.add(f"GET {_PATH}", Scope.READ, answers=(Answer("The image.", ImageShown),), errors=(404,))
async def get_image(call: Call) -> Reply:
    """Show an image, and how far its build is."""
    return await _show(call, call.params["image"])


@routes.add(
    f"POST {_PATH}/build",
    Scope.ADMIN,
    description="In the background: one at a time, and it goes on when you leave. Who asks again joins it. With "
    "`Accept: text/event-stream` the answer is a stream of its progress.",
    answers=(
        Answer(
            status=202,
            description="It is being built.",
            model=ImageShown,
            headers={"Location": "Where the image is."},
        ),
        Answer("It is built already.", ImageShown),
        Answer(_EVENTS, content_type="text/event-stream"),
    ),
    errors=(404, 409),
)
async def build_image(call: Call) -> ASGIApp:
    """Build an image."""
    name = call.params["image"]
    build = await call.service.image_builds.start(call.caller, name)
    if "text/event-stream" in (call.header(b"accept") or ""):
        events = _follow(call, name, build)
        return EventStream(events, contextlib.AsyncExitStack(), heartbeat_s=call.settings.serve.heartbeat_s)
    if build is None:
        return await _show(call, name)
    return await _show(call, name, 202, (b"location", f"/api/v1/images/{build.image}".encode()))


async def _follow(call: Call, name: str, build: Build | None) -> AsyncGenerator[bytes, None]:
    if build is not None:
        async with contextlib.aclosing(build.follow()) as steps:
            async for step in steps:
                yield encode_event("progress", translate.render_step(step))
    spec, status = await call.service.image_builds.status(name)
    shown = translate.render_image(spec, status, call.settings.image, call.service.image_builds.last(spec.name))
    yield encode_event("result", shown)


@routes.add(
    f"DELETE {_PATH}",
    Scope.ADMIN,
    description="Its spec stays, and it can be built again. Refused while there are sandboxes that are made from it.",
    query=RemoveImage,
    answers=(Answer("They are gone.", Freed),),
    errors=(404, 409),
)
async def remove_image(call: Call) -> Reply:
    """Delete the builds of an image."""
    name = call.params["image"]
    freed = await call.service.image_builds.remove(call.caller, name, stale_only=call.query(RemoveImage).stale_only)
    return json_reply({"name": name, "freed_bytes": freed})


async def _show(call: Call, name: str, status: int = 200, *headers: tuple[bytes, bytes]) -> Reply:
    builds = call.service.image_builds
    spec, found = await builds.status(name)
    shown = translate.render_image(spec, found, call.settings.image, builds.last(spec.name))
    return json_reply(shown, status, *headers)
