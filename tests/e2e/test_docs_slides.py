"""The page about slides, followed to its end: the command, the client library, curl; and a kill in the middle."""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
import zipfile
from typing import TYPE_CHECKING

import pytest
from pptx import Presentation

from e2e import forked

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from e2e.serving import RunningService
    from warren.domain.values import Image

pytestmark = [pytest.mark.root, pytest.mark.timeout(600)]
PAGE = os.path.join(os.path.dirname(__file__), "..", "..", "docs", "howto", "slides.md")
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def blocks(language: str) -> list[str]:
    with open(PAGE, encoding="utf-8") as file:
        return [text for kind, text in BLOCK.findall(file.read()) if kind == language]


@pytest.fixture
def service(serve: Callable[..., RunningService], office_image: Image) -> Iterator[RunningService]:
    assert office_image.name == "office"
    service = serve("local", render_per_minute=0).start()
    yield service
    service.stop()


def run(service: RunningService, folder: Path, argv: list[str]) -> subprocess.CompletedProcess[str]:
    env = {
        "PATH": forked.search_path(),
        "HOME": str(folder),
        "WARREN_URL": f"http://127.0.0.1:{service.port}",
        "WARREN_API_KEY": service.key,
    }
    return subprocess.run(argv, env=env, cwd=folder, capture_output=True, text=True, timeout=200, check=False)


def follow(service: RunningService, folder: Path, argv: list[str]) -> str:
    done = run(service, folder, argv)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_page_on_slides_can_be_followed_to_its_end(service: RunningService, tmp_path: Path) -> None:
    (tmp_path / "deck.html").write_text(blocks("html")[0])
    follow(service, tmp_path, ["bash", "-euo", "pipefail", "-c", blocks("bash")[0]])

    first, second = Presentation(str(tmp_path / "deck.pptx")).slides
    assert "They multiply." in " ".join(shape.text_frame.text for shape in first.shapes if shape.has_text_frame)
    (table,) = [shape.table for shape in second.shapes if shape.has_table]
    assert [cell.text for row in table.rows for cell in row.cells] == [
        *("Year", "Rabbits"),
        *("2025", "2"),
        *("2026", "1,024"),
    ]
    assert sorted(os.listdir(tmp_path / "pictures")) == ["slide_001.png", "slide_002.png"]

    assert follow(service, tmp_path, [sys.executable, "-W", "error", "-c", blocks("python")[0]]) == "2 ()\n"
    assert "presentation.pptx" in zipfile.ZipFile(tmp_path / "deck.zip").namelist()
    listed = follow(service, tmp_path, ["bash", "-euo", "pipefail", "-c", blocks("bash")[1]])
    assert "slides/slide_001.png" in listed

    (tmp_path / "gaps.html").write_text("<section class=slide><img src=a.png></section><script>nowhere()</script>")
    (tmp_path / "none.html").write_text("<script src=https://example.com/app.js></script>")
    gaps, none = (run(service, tmp_path, ["warren", "render", f"{name}.html"]) for name in ("gaps", "none"))
    assert (gaps.returncode, gaps.stderr.splitlines()) == (
        0,
        [
            "warning: the page asked for a.png, which did not come with it: bring the file, as assets/NAME",
            "warning: a script of the page failed: ReferenceError: nowhere is not defined (line 1)",
        ],
    )
    warning, failure = none.stderr.splitlines()
    assert warning.startswith("warning: the page asked for https://example.com/app.js, which is not there: ")
    assert none.returncode == 1
    assert failure.startswith("warren: no slide elements found for selector '.slide': mark each slide with the class")


def test_renders_that_a_kill_interrupts_are_reported_and_leave_nothing(service: RunningService) -> None:
    page = "<section class=slide>x</section><script>for(;;);</script>"
    with service.client() as client:
        running, queued = (
            client.post("/renders", json={"html": page, "background": True}).json()["id"] for _ in range(2)
        )
        with client.stream("GET", f"/renders/{running}/events") as events:
            next(line for line in events.iter_lines() if line == "event: progress")
        assert [client.get(f"/renders/{each}").json()["status"] for each in (running, queued)] == ["running", "queued"]
    assert os.listdir(service.folder / "local" / "sandboxes") != []
    service.kill()
    service.start()
    with service.client() as client:
        for each in (running, queued):
            shown = client.get(f"/renders/{each}").json()
            assert (shown["status"], shown["reason"]) == ("failed", "lost")
        assert os.listdir(service.folder / "local" / "sandboxes") == []
        good = client.post("/renders", json={"html": "<section class=slide><h1>Again</h1></section>"})
        assert good.status_code == 200
        assert "presentation.pptx" in zipfile.ZipFile(io.BytesIO(good.content)).namelist()
