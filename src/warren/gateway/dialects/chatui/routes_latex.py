"""ChatUI's LaTeX documents over HTTP, where the image has LaTeX."""

from __future__ import annotations

import datetime as dt
import io
import json
import re
import shlex
import zipfile
from typing import TYPE_CHECKING

from anyio import to_thread

from warren.core.executions.executions import NewExecution
from warren.core.executions.oneshot import OneShot
from warren.domain.errors import NotFound, Overloaded, QuotaExceeded
from warren.domain.records import Scope
from warren.domain.values import Cause, Echo, ExecKind
from warren.gateway.api.large_responses import answer_with
from warren.gateway.api.operations import Answer, Reply, Routes
from warren.gateway.api.streaming import finish_unless_left
from warren.gateway.dialects.chatui import schemas, translate, words
from warren.gateway.dialects.details import IgnoredQuery, Refused

if TYPE_CHECKING:
    from collections.abc import Mapping

    from starlette.types import ASGIApp

    from warren.core.executions.oneshot import OneShotResult
    from warren.gateway.api.operations import Call

_NO_LATEX = 127
_MAX_FILE = 10_000_000
_MAX_FILES = 25_000_000
_MAX_OUTPUT = 25_000_000
_SOURCE = "main.tex"
_EXCERPT = 4000
_CAREFUL = "openin_any=p openout_any=p"
"""Of the sandbox's files a document reads and writes its own alone. None of the others is a secret, or anybody's."""
_COMPILE = f"{_CAREFUL} pdflatex -interaction=nonstopmode -halt-on-error -file-line-error -no-shell-escape"

routes = Routes("Rendering", query=IgnoredQuery)


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
    await words.check_rate(call, "creates", words.CREATE_RATE)
    job = _clean_name(body.job_name)
    image = await _find_image(call)
    shot = _parse_tex(body, image=image, timeout_s=settings.latex_timeout_s)
    try:
        done = await finish_unless_left(call.receive, call.service.oneshots.run(call.caller, shot))
    except (Overloaded, QuotaExceeded) as error:
        raise Refused(429, "renderer is busy, please retry shortly", words.retry(error)) from error
    result = done.execution.result
    assert result is not None
    if result.cause is Cause.TIMEOUT:
        raise Refused(504, f"render timeout exceeded after {settings.latex_timeout_s} seconds")
    if result.exit_code == _NO_LATEX:
        raise Refused(
            501,
            f"The image {image or call.service.policy.image!r} has no pdflatex: build the image "
            f"{settings.latex_image!r} with `warren image build {settings.latex_image}`.",
        )
    files = {each.path: each.content for each in done.files}
    if result.ok and not done.files_complete:
        raise Refused(400, f"render output exceeds max size of {_MAX_OUTPUT} bytes")
    if not result.ok or f"{job}.pdf" not in files:
        raise Refused(422, _read_failure(done, files, job))
    content = await to_thread.run_sync(_build_archive, job, body.tex, files, result.duration_ms / 1000)
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


def _clean_name(name: str) -> str:
    """Make a file name from a client's name of its document."""
    return re.sub(r"[^A-Za-z0-9._-]+", "_", name).strip("._-")[:64] or "document"


def _parse_tex(body: schemas.Tex, *, image: str | None, timeout_s: float) -> OneShot:
    """Build the one-shot run that compiles a document. Raises Refused."""
    job = _clean_name(body.job_name)
    once = f"{_COMPILE} -jobname={shlex.quote(job)} {_SOURCE}"
    code = f"command -v pdflatex >/dev/null || exit {_NO_LATEX}\n{once} >/dev/null && {once}"
    files = _parse_files(body) | {_SOURCE: body.tex.encode("utf-8", "replace")}
    request = NewExecution(kind=ExecKind.SHELL, code=code, timeout_s=timeout_s, echo=Echo.NONE, kill_leftovers=True)
    outputs = (f"{job}.pdf", f"{job}.log")
    return OneShot(request=request, image=image, files=files, outputs=outputs, max_bytes=2 * _MAX_OUTPUT)


def _parse_files(body: schemas.Tex) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    for each in body.input_files:
        if each.file_name in found or each.file_name == _SOURCE:
            raise Refused(400, f"duplicate input file name: {each.file_name}")
        content = words.decode_file(each.file_name, each.base64_content)
        if len(content) > _MAX_FILE:
            raise Refused(400, f"input file '{each.file_name}' exceeds max size of {_MAX_FILE} bytes")
        found[each.file_name] = content
    if sum(map(len, found.values())) > _MAX_FILES:
        raise Refused(400, f"input_files exceed max combined size of {_MAX_FILES} bytes")
    return found


def _read_failure(shot: OneShotResult, files: Mapping[str, bytes], job: str) -> dict[str, str]:
    """Explain why a document could not be compiled."""
    assert shot.execution.result is not None
    log = files.get(f"{job}.log", b"") or shot.execution.result.stdout
    return {
        "message": "LaTeX compilation failed",
        "error_type": "LatexCompilationError",
        "log_excerpt": log.decode("utf-8", "replace")[-_EXCERPT:],
    }


def _build_archive(job: str, tex: str, files: Mapping[str, bytes], seconds: float) -> bytes:
    """Build the archive of a document that was compiled. Raises Refused when it is too large."""
    pdf = files[f"{job}.pdf"]
    about = {
        "file_name": f"{job}.pdf",
        "media_type": "application/pdf",
        "compiler": "pdflatex",
        "compiled_at": dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
        "execution_time": round(seconds, 3),
        "pdf_size": len(pdf),
    }
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as out:
        out.writestr(f"{job}.pdf", pdf)
        out.writestr("source/main.tex", tex.encode("utf-8", "replace"))
        out.writestr("logs/pdflatex.log", files.get(f"{job}.log", b""))
        out.writestr("metadata.json", json.dumps(about, indent=2))
    if archive.tell() > _MAX_OUTPUT:
        raise Refused(400, f"render output exceeds max size of {_MAX_OUTPUT} bytes")
    return archive.getvalue()
