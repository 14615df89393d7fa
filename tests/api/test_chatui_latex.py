"""LaTeX documents of the ChatUI dialect, in an image with a program in the place of pdflatex, and in one without."""

from __future__ import annotations

import glob
import io
import json
import os
import shutil
import zipfile
from typing import TYPE_CHECKING, Any

import pytest

from api.chatui import connect, given, serve
from api.served import Served

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import httpx

    from warren.settings import Settings

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(os.geteuid() != 0, reason="the local engine is tested as root here"),
]
PDFLATEX = """#!/bin/bash
for word; do case $word in -jobname=*) job=${word#*=};; esac; done
echo "$@" >> $job.log
if grep -q '[\\]broken' main.tex; then echo "main.tex:1: Undefined control sequence" | tee -a $job.log; exit 1; fi
if grep -q '[\\]endless' main.tex; then sleep 100; fi
cat main.tex *.png > $job.pdf 2>/dev/null || true
"""


@pytest.fixture(scope="module")
def served(make_settings: Callable[..., Settings]) -> Iterator[Served]:
    settings = make_settings("local", dialects={"chatui": {"creates_per_minute": 0, "latex_timeout_s": 2}})
    images = os.path.join(settings.data_dir, "images")
    built = os.path.realpath(images)
    os.unlink(images)
    for about in glob.glob(os.path.join(built, "*", "image.json")):
        with open(about, encoding="utf-8") as file:
            if json.load(file)["image"]["name"] != "python":
                continue
        copy = os.path.join(images, os.path.basename(os.path.dirname(about)))
        shutil.copytree(os.path.dirname(about), copy, symlinks=True)
        with open(os.path.join(copy, "venv", "bin", "pdflatex"), "w") as program:
            program.write(PDFLATEX)
        os.chmod(program.name, 0o755)
    served = Served(settings)
    served.start()
    yield served
    served.stop()


def render(served: Served, tex: str, **fields: Any) -> httpx.Response:
    with connect(served) as client:
        return client.post("/api/latex/render", json={"tex": tex, **fields})


def test_a_document_comes_back_as_an_archive(served: Served) -> None:
    files = [{"file_name": "a.png", "base64": given("", b"picture")["content"]}]
    answer = render(served, "hello", job_name="../My report!", input_files=files)
    archive = zipfile.ZipFile(io.BytesIO(answer.content))

    assert (answer.status_code, answer.headers["content-type"]) == (200, "application/zip")
    assert (answer.headers["x-pdf-file-name"], answer.headers["x-latex-compiler"]) == ("My_report.pdf", "pdflatex")
    assert len(answer.headers["x-render-id"]) == 12
    assert sorted(archive.namelist()) == ["My_report.pdf", "logs/pdflatex.log", "metadata.json", "source/main.tex"]
    assert (archive.read("My_report.pdf"), archive.read("source/main.tex")) == (b"hellopicture", b"hello")
    # Twice, so that references are found, and without a shell to escape to.
    assert archive.read("logs/pdflatex.log").count(b"-no-shell-escape") == 2
    about = json.loads(archive.read("metadata.json"))
    assert (about["file_name"], about["compiler"], about["pdf_size"]) == ("My_report.pdf", "pdflatex", 12)


def test_what_does_not_compile_says_why(served: Served) -> None:
    answer = render(served, "\\broken")

    assert answer.status_code == 422
    assert answer.json()["detail"]["error_type"] == "LatexCompilationError"
    assert "Undefined control sequence" in answer.json()["detail"]["log_excerpt"]


def test_what_takes_too_long_is_ended(served: Served) -> None:
    answer = render(served, "\\endless")

    assert (answer.status_code, answer.json()) == (504, {"detail": "render timeout exceeded after 2 seconds"})


@pytest.mark.skipif(shutil.which("pdflatex") is not None, reason="this host has LaTeX, and so has its image")
def test_an_image_without_latex_says_so(make_settings: Callable[..., Settings]) -> None:
    for served in serve(make_settings, pytest.skip):
        answer = render(served, "hello")

        assert answer.status_code == 501
        assert answer.json()["detail"].startswith("The image 'python' has no pdflatex")
