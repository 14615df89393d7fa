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

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from e2e.serving import RunningService
    from warren.domain import Image

pytestmark = [pytest.mark.root, pytest.mark.timeout(600)]
PAGE = os.path.join(os.path.dirname(__file__), "..", "..", "docs", "howto", "slides.md")
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)
BIN = os.path.dirname(sys.executable)


def blocks(language: str) -> list[str]:
    with open(PAGE, encoding="utf-8") as file:
        return [text for kind, text in BLOCK.findall(file.read()) if kind == language]


@pytest.fixture
def service(serve: Callable[..., RunningService], office_image: Image) -> Iterator[RunningService]:
    assert office_image.name == "office"
    service = serve("local", render_per_minute=0).start()
    yield service
    service.stop()


def follow(service: RunningService, folder: Path, argv: list[str]) -> str:
    env = {
        "PATH": f"{BIN}:{os.environ['PATH']}",
        "HOME": str(folder),
        "WARREN_URL": f"http://127.0.0.1:{service.port}",
        "WARREN_API_KEY": service.key,
    }
    done = subprocess.run(argv, env=env, cwd=folder, capture_output=True, text=True, timeout=200, check=False)
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


def test_a_render_that_a_kill_interrupts_is_reported_and_leaves_nothing(service: RunningService) -> None:
    page = "<section class=slide>x</section><script>for(;;);</script>"
    with service.client() as client:
        begun = client.post("/renders", json={"html": page, "background": True}).json()
    service.kill()
    service.start()
    with service.client() as client:
        shown = client.get(f"/renders/{begun['id']}").json()
        assert (shown["status"], shown["reason"]) == ("failed", "lost")
        good = client.post("/renders", json={"html": "<section class=slide><h1>Again</h1></section>"})
        assert good.status_code == 200
        assert "presentation.pptx" in zipfile.ZipFile(io.BytesIO(good.content)).namelist()
