"""LaTeX documents of the ChatUI dialect, compiled by the real pdflatex in the `office` image."""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import struct
import subprocess
import zipfile
import zlib
from typing import TYPE_CHECKING, Any

import pytest

from api.chatui import connect, given, serve
from api.served import Served
from warren.core.images.catalog import Catalog

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    import httpx

    from warren.domain.values import Image
    from warren.settings import Settings

pytestmark = [
    pytest.mark.root,
    pytest.mark.timeout(600),  # the first who asks for the image builds it
    pytest.mark.skipif(os.geteuid() != 0, reason="the local engine is tested as root here"),
]


@pytest.fixture(scope="module")
def served(make_settings: Callable[..., Settings], office_image: Image) -> Iterator[Served]:
    assert office_image.name == "office"
    yield from serve(make_settings, pytest.skip)


def render(served: Served, tex: str, **fields: Any) -> httpx.Response:
    with connect(served) as client:
        return client.post("/api/latex/render", json={"tex": tex, **fields})


def document(body: str, packages: str = "lmodern") -> str:
    return f"\\documentclass{{article}}\\usepackage{{{packages}}}\\begin{{document}}{body}\\end{{document}}"


def read_pages(answer: httpx.Response) -> tuple[zipfile.ZipFile, str]:
    assert answer.status_code == 200, answer.text
    archive = zipfile.ZipFile(io.BytesIO(answer.content))
    return archive, ask_poppler(archive.read(answer.headers["x-pdf-file-name"]), "pdftotext", "-", "-")


def ask_poppler(pdf: bytes, *command: str) -> str:
    if shutil.which(command[0]) is None:
        pytest.skip(f"{command[0]} is not installed: it is in the package poppler-utils")
    done = subprocess.run(command, input=pdf, capture_output=True, timeout=60, check=True)
    return done.stdout.decode()


def draw_png(width: int, height: int) -> bytes:
    """A red rectangle."""
    rows = (b"\0" + b"\xff\0\0" * width) * height
    parts = (b"IHDR" + struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0), b"IDAT" + zlib.compress(rows), b"IEND")
    framed = (struct.pack(">I", len(part) - 4) + part + struct.pack(">I", zlib.crc32(part)) for part in parts)
    return b"\x89PNG\r\n\x1a\n" + b"".join(framed)


def refusal(answer: httpx.Response) -> str:
    """The end of the log of a document that was not compiled."""
    assert answer.status_code == 422, answer.text
    assert answer.json()["detail"]["message"] == "LaTeX compilation failed"
    assert answer.json()["detail"]["error_type"] == "LatexCompilationError"
    said: str = answer.json()["detail"]["log_excerpt"]
    return said


def test_a_document_with_a_picture_comes_back_as_an_archive(served: Served) -> None:
    tex = document("Hello \\includegraphics{a.png}", "graphicx,lmodern,amsmath,booktabs,hyperref,xcolor")
    files = [{"file_name": "a.png", "base64": given("", draw_png(40, 20))["content"]}]

    answer = render(served, tex, job_name="../My report!", input_files=files)
    archive, text = read_pages(answer)

    assert answer.headers["content-type"] == "application/zip"
    assert (answer.headers["x-pdf-file-name"], answer.headers["x-latex-compiler"]) == ("My_report.pdf", "pdflatex")
    assert len(answer.headers["x-render-id"]) == 12
    assert sorted(archive.namelist()) == ["My_report.pdf", "logs/pdflatex.log", "metadata.json", "source/main.tex"]
    assert "Hello" in text
    assert re.search(r"image +40 +20 +rgb", ask_poppler(archive.read("My_report.pdf"), "pdfimages", "-list", "-"))
    assert archive.read("source/main.tex").decode() == tex
    assert b"Output written on My_report.pdf" in archive.read("logs/pdflatex.log")
    about = json.loads(archive.read("metadata.json"))
    assert (about["file_name"], about["compiler"]) == ("My_report.pdf", "pdflatex")
    assert about["pdf_size"] == len(archive.read("My_report.pdf"))


def test_references_are_found_because_it_is_compiled_twice(served: Served) -> None:
    _, text = read_pages(
        render(served, document("\\tableofcontents\\section{Burrows}\\label{b} See section \\ref{b}."))
    )

    assert "See section 1" in text
    assert text.count("Burrows") == 2


def test_what_does_not_compile_says_where_and_why(served: Served) -> None:
    said = refusal(render(served, document("fine\n\n\\nosuchcommand")))

    assert "Undefined control sequence" in said
    assert "main.tex:3:" in said


def test_a_document_without_a_page_is_no_document(served: Served) -> None:
    assert "No pages of output" in refusal(render(served, document("")))


def test_a_document_runs_no_program(served: Served) -> None:
    archive, text = read_pages(render(served, document("\\immediate\\write18{id > stolen.txt}still here")))

    assert "still here" in text
    assert b"system commands enabled" not in archive.read("logs/pdflatex.log")
    assert "stolen.txt" not in archive.namelist()
    refusal(render(served, document("\\input{|id}")))


@pytest.mark.parametrize("path", ["/etc/passwd", "/opt/image/etc/fonts.conf", "../etc/passwd", "~/.bashrc"])
def test_a_document_reads_no_file_but_its_own(served: Served, path: str) -> None:
    said = refusal(render(served, document(f"\\input{{{path}}}")))

    assert re.search(r"not found|openin_any", said)
    assert "root:" not in said


def test_a_document_writes_nowhere_else(served: Served) -> None:
    refusal(render(served, document("\\newwrite\\w\\immediate\\openout\\w=/tmp/x.txt page")))


def test_more_than_can_be_answered_is_refused(served: Served) -> None:
    files = [{"file_name": "a.bin", "base64": given("", os.urandom(2_000_000))["content"]}]
    attach = "\\immediate\\pdfobj stream file{a.bin}\\pdfrefobj\\pdflastobj"

    for times in (14, 26):  # More than an archive may have, and more than is taken out of the sandbox.
        answer = render(served, document(f"\\pdfcompresslevel=0 {times * attach} big"), input_files=files)

        assert answer.status_code == 400
        assert answer.json() == {"detail": "render output exceeds max size of 25000000 bytes"}


def test_files_that_a_document_writes_besides_do_not_crowd_out_its_pages(served: Served) -> None:
    flood = (
        "\\newcount\\n\\newwrite\\w\\loop\\immediate\\openout\\w=a\\the\\n.txt \\advance\\n by 1 \\ifnum\\n<300\\repeat"
    )

    _, text = read_pages(render(served, document(f"{flood} the page")))

    assert "the page" in text


@pytest.mark.parametrize("endless", ["\\loop\\iftrue\\repeat", "\\loop\\typeout{again and again}\\iftrue\\repeat"])
def test_what_never_ends_is_ended(make_settings: Callable[..., Settings], office_image: Image, endless: str) -> None:
    assert office_image.name == "office"
    for served in serve(make_settings, pytest.skip, latex_timeout_s=2):
        answer = render(served, document(endless))

        assert (answer.status_code, answer.json()) == (504, {"detail": "render timeout exceeded after 2 seconds"})


def test_where_no_image_has_latex_it_says_so(make_settings: Callable[..., Settings], tmp_path: Path) -> None:
    # Programs of the host are not on its path, so it has no LaTeX, whatever the host has.
    (tmp_path / "plain.toml").write_text('name = "plain"\npackages = []\nenv = {PATH = "/opt/image/bin"}\n')
    chosen = {"image": "plain", "image_dirs": (str(tmp_path),), "data_dir": str(tmp_path / "data")}
    settings = make_settings("local").model_copy(update=chosen)
    Catalog(settings.data_dir, settings.image_dirs).build("plain")
    served = Served(settings)
    served.start()
    try:
        answer = render(served, document("hello"))
    finally:
        served.stop()

    assert answer.status_code == 501
    assert answer.json()["detail"] == (
        "The image 'plain' has no pdflatex: build the image 'office' with `warren image build office`."
    )
