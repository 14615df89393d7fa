"""ChatUI's LaTeX documents: the compilation, and the archive of its result. Pure."""

from __future__ import annotations

import datetime as dt
import io
import json
import re
import shlex
import zipfile
from typing import TYPE_CHECKING

from warren.core.executions.executions import NewExecution
from warren.core.executions.oneshot import OneShot
from warren.domain.values import Echo, ExecKind
from warren.gateway.dialects.chatui import words
from warren.gateway.dialects.details import Refused

if TYPE_CHECKING:
    from collections.abc import Mapping

    from warren.core.executions.oneshot import OneShotResult
    from warren.gateway.dialects.chatui.schemas import Tex

NO_LATEX = 127
MAX_FILE = 10_000_000
MAX_FILES = 25_000_000
MAX_OUTPUT = 25_000_000
_SOURCE = "main.tex"
_EXCERPT = 4000
_CAREFUL = "openin_any=p openout_any=p"
"""Of the sandbox's files a document reads and writes its own alone. None of the others is a secret, or anybody's."""
_COMPILE = f"{_CAREFUL} pdflatex -interaction=nonstopmode -halt-on-error -file-line-error -no-shell-escape"


def clean_name(name: str) -> str:
    """Make a file name from a client's name of its document."""
    return re.sub(r"[^A-Za-z0-9._-]+", "_", name).strip("._-")[:64] or "document"


def parse_tex(body: Tex, *, image: str | None, timeout_s: float) -> OneShot:
    """Build the one-shot run that compiles a document. Raises Refused."""
    job = clean_name(body.job_name)
    once = f"{_COMPILE} -jobname={shlex.quote(job)} {_SOURCE}"
    code = f"command -v pdflatex >/dev/null || exit {NO_LATEX}\n{once} >/dev/null && {once}"
    files = _parse_files(body) | {_SOURCE: body.tex.encode("utf-8", "replace")}
    request = NewExecution(kind=ExecKind.SHELL, code=code, timeout_s=timeout_s, echo=Echo.NONE, kill_leftovers=True)
    outputs = (f"{job}.pdf", f"{job}.log")
    return OneShot(request=request, image=image, files=files, outputs=outputs, max_bytes=2 * MAX_OUTPUT)


def _parse_files(body: Tex) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    for each in body.input_files:
        if each.file_name in found or each.file_name == _SOURCE:
            raise Refused(400, f"duplicate input file name: {each.file_name}")
        content = words.decode_file(each.file_name, each.base64_content)
        if len(content) > MAX_FILE:
            raise Refused(400, f"input file '{each.file_name}' exceeds max size of {MAX_FILE} bytes")
        found[each.file_name] = content
    if sum(map(len, found.values())) > MAX_FILES:
        raise Refused(400, f"input_files exceed max combined size of {MAX_FILES} bytes")
    return found


def read_failure(shot: OneShotResult, files: Mapping[str, bytes], job: str) -> dict[str, str]:
    """Explain why a document could not be compiled."""
    assert shot.execution.result is not None
    log = files.get(f"{job}.log", b"") or shot.execution.result.stdout
    return {
        "message": "LaTeX compilation failed",
        "error_type": "LatexCompilationError",
        "log_excerpt": log.decode("utf-8", "replace")[-_EXCERPT:],
    }


def build_archive(job: str, tex: str, files: Mapping[str, bytes], seconds: float) -> bytes:
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
    if archive.tell() > MAX_OUTPUT:
        raise Refused(400, f"render output exceeds max size of {MAX_OUTPUT} bytes")
    return archive.getvalue()
