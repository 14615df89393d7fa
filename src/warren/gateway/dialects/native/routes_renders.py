"""The native API: decks to presentations, at once or in the background."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from anyio import to_thread

from warren.core.policy.policy import EDITABLE, PICTURES
from warren.core.slides.job import DeckFailed, NewRender
from warren.domain.errors import InvalidRequest, RenderFailed
from warren.domain.records import Scope
from warren.gateway.api.operations import NO_CONTENT, Answer, Routes, json_reply
from warren.gateway.api.streaming import EventStream, encode_event, finish_unless_left
from warren.gateway.api.transfers import Streamed
from warren.gateway.dialects.native import schemas_renders as schemas
from warren.gateway.dialects.native.translate_requests import parse_content

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from starlette.types import ASGIApp

    from warren.domain.records import Render
    from warren.gateway.api.operations import Call, Reply

_PATH = "/renders/{render_id}"
_ZIP = "An archive: the presentation, and a picture of each slide under `slides/`."
_EVENTS = "`progress` (`phase`, `done`, `total`) for each step, then `result` (the render)."


routes = Routes("Slides")


@routes.add(
    "POST /renders",
    Scope.RUN,
    description="Each element of the class `slide` becomes a slide, as one exact picture or as text, shapes, "
    "tables and pictures that can be edited. It is rendered in a sandbox of its own, without a network; what a "
    "page loads it must bring. A slide that cannot be made editable is a picture, and `X-Degraded-Slides` lists "
    "it. `X-Missing-Count` and `X-Script-Error-Count` say that the page asked for what is not there, or that its "
    "scripts failed; the record of a render in the background says for what, and how. A client that goes away ends "
    "it, unless it is in the background.",
    body=schemas.CreateRender,
    body_limit=lambda settings: settings.render.body_bytes,
    example={"html": "<section class='slide'><h1>Hello</h1></section>", "editable": True},
    answers=(
        Answer(_ZIP, content_type="application/zip"),
        Answer(
            status=202,
            description="It is rendered in the background.",
            model=schemas.RenderShown,
            headers={"Location": "Where the render is."},
        ),
    ),
    errors=(404, 413, 422, 502),
)
async def create_render(call: Call) -> ASGIApp:
    """Make a presentation of a page."""
    body = call.body(schemas.CreateRender)
    new = await to_thread.run_sync(_parse, body)
    renders = call.service.renders
    if body.background:
        render = await renders.start(call.caller, new)
        return json_reply(show(render), 202, (b"location", f"/api/v1/renders/{render.id}".encode()))
    async with contextlib.AsyncExitStack() as held:
        rendering = held.enter_async_context(renders.render(call.caller, new))
        try:
            rendered = await finish_unless_left(call.receive, rendering)
        except DeckFailed as failure:
            raise RenderFailed(_explain(failure), reason=failure.reason) from failure
        headers = [*_archive_headers(body.name), (b"x-slide-count", b"%d" % rendered.slides)]
        headers.append((b"x-rendering-version", rendered.version.encode()))
        if rendered.degraded:
            listed = ",".join(str(each.slide) for each in rendered.degraded)
            headers.append((b"x-degraded-slides", listed.encode()))
        if rendered.findings.missing:
            headers.append((b"x-missing-count", b"%d" % len(rendered.findings.missing)))
        if rendered.findings.script_errors:
            headers.append((b"x-script-error-count", b"%d" % len(rendered.findings.script_errors)))
        # WHY within: it holds one of the few places until it is read.
        within_s = call.settings.render.timeout_s
        return Streamed(
            rendered.content, held.pop_all(), headers=headers, length=rendered.content.length, within_s=within_s
        )
    raise AssertionError


@routes.add("GET /renders", Scope.READ, answers=(Answer("Newest first.", schemas.RendersShown),))
async def list_renders(call: Call) -> Reply:
    """List your renders in the background."""
    return json_reply({"items": [show(each) for each in await call.service.renders.list(call.caller)]})


@routes.add(f"GET {_PATH}", Scope.READ, answers=(Answer("The render.", schemas.RenderShown),), errors=(404,))
async def get_render(call: Call) -> Reply:
    """Show a render."""
    return json_reply(show(await call.service.renders.get(call.caller, _id(call))))


@routes.add(
    f"GET {_PATH}/events",
    Scope.READ,
    description="From its beginning to its end, also when it is over.",
    answers=(Answer(_EVENTS, content_type="text/event-stream"),),
    errors=(404,),
)
async def follow_render(call: Call) -> ASGIApp:
    """Follow a render."""
    render_id = _id(call)
    await call.service.renders.get(call.caller, render_id)
    return EventStream(
        _follow(call, render_id), contextlib.AsyncExitStack(), heartbeat_s=call.settings.serve.heartbeat_s
    )


async def _follow(call: Call, render_id: str) -> AsyncGenerator[bytes, None]:
    async with contextlib.aclosing(call.service.renders.follow(call.caller, render_id)) as steps:
        async for step in steps:
            yield encode_event("progress", {"phase": step.phase, "done": step.done, "total": step.total})
    yield encode_event("result", show(await call.service.renders.get(call.caller, render_id)))


@routes.add(
    f"GET {_PATH}/result", Scope.READ, answers=(Answer(_ZIP, content_type="application/zip"),), errors=(404, 409, 422)
)
async def get_render_result(call: Call) -> ASGIApp:
    """Get what a render made."""
    file = await call.service.renders.result(call.caller, _id(call))
    async with contextlib.AsyncExitStack() as held:
        content = await held.enter_async_context(call.service.stored_files.read(call.caller, file))
        headers = _archive_headers(file.name.removesuffix(".zip"))
        return Streamed(content, held.pop_all(), headers=headers, length=file.size)
    raise AssertionError


@routes.add(
    f"DELETE {_PATH}",
    Scope.RUN,
    description="What it made is deleted too.",
    answers=(Answer("It is gone.", status=204),),
    errors=(404,),
)
async def delete_render(call: Call) -> Reply:
    """End and forget a render."""
    await call.service.renders.delete(call.caller, _id(call))
    return NO_CONTENT


def show(render: Render) -> dict[str, Any]:
    """Write what is known of a render."""
    return schemas.RenderShown.render(
        render,
        degraded=[{"slide": slide, "why": why} for slide, why in render.degraded],
        missing=[{"url": url, "count": count} for url, count in render.missing],
    )


def _id(call: Call) -> str:
    return call.id("render_id", schemas.RENDER_ID, "render")


def _parse(body: schemas.CreateRender) -> NewRender:
    files: dict[str, bytes] = {}
    for asset in body.assets:
        if asset.name in files:
            raise InvalidRequest(f"assets: {asset.name[:100]!r} is there twice")
        files[asset.name] = parse_content(asset, f"assets: give {asset.name[:100]!r}")
    version = None if body.editable is None else EDITABLE if body.editable else PICTURES
    return NewRender(html=body.html, files=files, version=version, name=body.name)


def _explain(failure: DeckFailed) -> str:
    """Explain why there is no presentation, and the likely cause: a render that is waited for leaves no record."""
    said, findings = [str(failure)], failure.findings
    if findings.missing:
        more = f" and {len(findings.missing) - 1} more" if len(findings.missing) > 1 else ""
        said.append(f"the page asked in vain for {findings.missing[0][0]}{more}")
    if findings.script_errors:
        said.append(f"a script of it failed: {findings.script_errors[0]}")
    return "; ".join(said)


def _archive_headers(name: str) -> list[tuple[bytes, bytes]]:
    return [
        (b"content-type", b"application/zip"),
        (b"content-disposition", f'attachment; filename="{name}.zip"'.encode()),
    ]
