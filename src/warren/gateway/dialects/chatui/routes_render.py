"""ChatUI's slides: a page with `.slide` sections in, an archive with a presentation and pictures out."""

from __future__ import annotations

import contextlib
import datetime as dt
from typing import TYPE_CHECKING

from anyio import to_thread

from warren.core.slides.job import NewRender
from warren.domain.errors import InvalidRequest, NotFound, Overloaded, QuotaExceeded, RenderFailed, TooLarge
from warren.domain.records import Scope
from warren.gateway.api.operations import Answer, Routes
from warren.gateway.api.streaming import finish_unless_left
from warren.gateway.api.transfers import Streamed
from warren.gateway.dialects.chatui import schemas, translate, words
from warren.gateway.dialects.details import IgnoredQuery, Refused

if TYPE_CHECKING:
    from starlette.types import ASGIApp

    from warren.core.slides.job import Rendered
    from warren.gateway.api.operations import Call
    from warren.settings import Settings

_STATUSES = {"too_many_slides": 400, "output_too_large": 400, "slide_size": 400, "timeout": 504, "page_hung": 504}
RATE = "Render rate limit exceeded for this principal."


routes = Routes("Rendering", query=IgnoredQuery)


@routes.add(
    "POST /api/render /api/v1/render",
    Scope.RUN,
    description="A page with elements of the class `slide` becomes a presentation: pictures of them (`v1`), or "
    "text, shapes, tables and pictures that can be edited (`v2`). `X-Degraded-Slides` lists those that had to "
    "stay pictures.",
    body=schemas.Deck,
    body_limit=lambda settings: settings.render.body_bytes,
    answers=(
        Answer(
            description="An archive: the presentation, and a picture of each slide under `slides/`.",
            content_type="application/zip",
        ),
    ),
    errors=(400, 422, 501),
)
async def render_slides(call: Call) -> ASGIApp:
    """Render slides."""
    body = call.body(schemas.Deck)
    version = body.rendering_version or call.settings.render.version
    name = f"presentation_{version}_{dt.datetime.now(dt.UTC):%Y%m%dT%H%M%SZ}"
    files = await to_thread.run_sync(_parse_files, body, call.settings)
    new = NewRender(html=body.html, files=files, version=version, name=name)
    async with contextlib.AsyncExitStack() as held:
        try:
            rendering = held.enter_async_context(call.service.renders.render(call.caller, new))
            rendered = await finish_unless_left(call.receive, rendering)
        except (RenderFailed, InvalidRequest, TooLarge, QuotaExceeded, Overloaded, NotFound) as error:
            raise _refuse(error) from error
        return Streamed(
            rendered.content,
            held.pop_all(),
            headers=_headers(rendered, name),
            length=rendered.content.length,
            # WHY: it holds one of the few places until it is read.
            within_s=call.settings.render.timeout_s,
        )
    raise AssertionError


def _refuse(error: Exception) -> Refused:
    match error:
        case RenderFailed():
            return Refused(_STATUSES.get(error.reason, 500), str(error))
        case QuotaExceeded():
            return Refused(429, RATE, words.retry(error))
        case Overloaded():
            return Refused(429, "renderer is busy, please retry shortly", words.retry(error))
        case NotFound():
            return Refused(501, f"Slides cannot be rendered here: {error}")
        case _:
            return Refused(400, str(error))


def _headers(rendered: Rendered, name: str) -> list[tuple[bytes, bytes]]:
    release = translate.RELEASE.encode()
    headers = [
        (b"content-type", b"application/zip"),
        (b"content-disposition", f'attachment; filename="{name}.zip"'.encode()),
        (b"x-rendering-version", rendered.version.encode()),
        (b"x-renderer-version", release),
        (b"x-renderer-version-tag", b"v" + release),
        (b"x-slide-count", b"%d" % rendered.slides),
        (b"x-render-id", translate.render_id(rendered.id).encode()),
    ]
    if rendered.degraded:
        listed = ",".join(str(each.slide) for each in rendered.degraded)
        headers.append((b"x-degraded-slides", listed.encode()))
    return headers


def _parse_files(body: schemas.Deck, settings: Settings) -> dict[str, bytes]:
    """Decode what the page brings. Raises Refused."""
    if len(body.input_files) > settings.render.files:
        raise Refused(400, f"too many input_files (max {settings.render.files})")
    return {each.file_name: words.decode_file(each.file_name, each.base64_content) for each in body.input_files}
