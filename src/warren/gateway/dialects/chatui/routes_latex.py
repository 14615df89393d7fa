"""ChatUI's LaTeX documents over HTTP, where the image has LaTeX."""

from __future__ import annotations

from typing import TYPE_CHECKING

from anyio import to_thread

from warren.domain.errors import NotFound, Overloaded, QuotaExceeded
from warren.domain.records import Scope
from warren.domain.values import Cause
from warren.gateway.api.large_responses import answer_with
from warren.gateway.api.operations import Answer, Reply, Routes
from warren.gateway.api.streaming import finish_unless_left
from warren.gateway.dialects.chatui import latex, schemas, translate, words
from warren.gateway.dialects.details import Refused

if TYPE_CHECKING:
    from starlette.types import ASGIApp

    from warren.gateway.api.operations import Call

routes = Routes("Rendering", query=schemas.Nothing)


@routes.add(
    "POST /api/latex/render /api/v1/latex/render",
    Scope.RUN,
    description="With `pdflatex`, twice, in a sandbox of its own; 501 where the image has none.",
    body=schemas.Tex,
    body_limit=lambda settings: settings.dialects.chatui.latex_body_bytes,
    answers=(Answer("An archive: document, source, log.", content_type="application/zip"),),
    errors=(400, 422, 501),
)
async def render_latex(call: Call) -> ASGIApp:
    """Compile a LaTeX document."""
    body, settings = call.body(schemas.Tex), call.settings.dialects.chatui
    await words.check_rate(call, "containers", settings.creates_per_minute, words.CREATE_RATE)
    job = latex.clean_name(body.job_name)
    image = await _find_image(call)
    shot = latex.parse_tex(body, image=image, timeout_s=settings.latex_timeout_s)
    try:
        done = await finish_unless_left(call.receive, call.service.oneshots.run(call.caller, shot))
    except (Overloaded, QuotaExceeded) as error:
        raise Refused(429, "renderer is busy, please retry shortly", words.retry(error)) from error
    result = done.execution.result
    assert result is not None
    if result.cause is Cause.TIMEOUT:
        raise Refused(504, f"render timeout exceeded after {settings.latex_timeout_s} seconds")
    if result.exit_code == latex.NO_LATEX:
        raise Refused(
            501,
            f"The image {image or call.service.policy.image!r} has no pdflatex: build the image "
            f"{settings.latex_image!r} with `warren image build {settings.latex_image}`.",
        )
    files = {each.path: each.content for each in done.files}
    if result.ok and not done.files_complete:
        raise Refused(400, f"render output exceeds max size of {latex.MAX_OUTPUT} bytes")
    if not result.ok or f"{job}.pdf" not in files:
        raise Refused(422, latex.read_failure(done, files, job))
    content = await to_thread.run_sync(latex.build_archive, job, body.tex, files, result.duration_ms / 1000)
    headers = (
        (b"content-type", b"application/zip"),
        (b"content-disposition", f'attachment; filename="{job}.zip"'.encode()),
        (b"x-pdf-file-name", f"{job}.pdf".encode()),
        (b"x-latex-compiler", b"pdflatex"),
        (b"x-render-id", translate.render_id(done.execution.id).encode()),
    )
    return answer_with(call, len(content), lambda: Reply(content, 200, headers))


async def _find_image(call: Call) -> str | None:
    """Return the image with LaTeX if it is built; else the default image."""
    name = call.settings.dialects.chatui.latex_image
    try:
        return (await call.service.images.get(name)).name
    except NotFound:
        return None
