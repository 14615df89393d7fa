"""The program of a render with a real browser: every way of hiding slides, scripts of the web, what is in its ZIP."""

from __future__ import annotations

import asyncio
import io
import json
import os
import subprocess
import sys
import zipfile
from typing import TYPE_CHECKING, Any

import pytest
from PIL import Image
from pptx import Presentation

from e2e.decks_hidden import DECKS
from warren.render.browser.browser import Browser, BrowserMissing, find_program
from warren.render.browser.deck import Deck
from warren.render.browser.mirror import Mirror
from warren.render.job import Job
from warren.render.rendering import Rendered, Rendering

if TYPE_CHECKING:
    from warren.domain.values import Image as SandboxImage

pytestmark = pytest.mark.timeout(600)
_DEADLINE_S = 100.0
_COLOURS = [(255, 0, 0), (0, 255, 0), (0, 0, 255)]

_ON_WEB_DECK = {
    "tailwind": (0, (1000, 600), (0x11, 0x22, 0x33)),
    "chart.js": (1, (640, 700), (0x7C, 0x3A, 0xED)),
    "echarts": (2, (640, 600), (0x00, 0xAA, 0x55)),
    "d3": (3, (640, 715), (0xAA, 0x00, 0x55)),
    "font-awesome": (5, (230, 200), (0xFF, 0x88, 0x00)),
    "material-icons": (5, (750, 200), (0x00, 0x88, 0xFF)),
    "highlight": (5, (590, 530), (0x0D, 0x11, 0x17)),
}
"""Where one sees that it worked: on which slide, at which point, in which colour."""


@pytest.fixture(scope="module")
def program() -> None:
    try:
        find_program()
    except BrowserMissing as missing:
        pytest.skip(str(missing))


@pytest.fixture
def render(program: None, tmp_path: Any) -> Any:
    """Render one deck in a process of its own."""
    del program

    def run(html: str, *, python: str = sys.executable, assets: dict[str, bytes] | None = None, **job: Any) -> Any:
        (tmp_path / "index.html").write_text(html)
        (tmp_path / "job.json").write_text(json.dumps(job))
        for name, content in (assets or {}).items():
            path = tmp_path / "assets" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        ran = subprocess.run(
            [python, "-m", "warren.render.job", str(tmp_path / "job.json")],
            capture_output=True,
            timeout=_DEADLINE_S,
            check=False,
        )
        assert ran.stderr == b""
        said = [json.loads(line) for line in ran.stdout.splitlines()]
        result = json.loads((tmp_path / "result.json").read_text())
        assert said[-1] == {"type": "done", "ok": result["ok"]}
        assert ran.returncode == (0 if result["ok"] else 1)
        result["said"] = said
        return result, zipfile.ZipFile(tmp_path / "out.zip") if result["ok"] else None

    return run


def _pictures(archive: zipfile.ZipFile) -> list[Image.Image]:
    names = sorted(name for name in archive.namelist() if name.startswith("slides/"))
    return [Image.open(io.BytesIO(archive.read(name))).convert("RGB") for name in names]


@pytest.mark.parametrize("name", DECKS)
def test_each_slide_is_shown_alone_however_the_deck_hides_it(
    program: None, office_image: SandboxImage, tmp_path: Any, name: str
) -> None:
    del program
    mirror = Mirror(os.path.join(office_image.path, "venv/lib/node_modules"))
    target = str(tmp_path / "out.zip")

    async def render() -> Rendered:
        async with Browser() as browser:
            rendering = Rendering(browser, Job(zip=target), lambda *_: None)
            return await rendering.run(Deck(DECKS[name].encode()), mirror)

    result = asyncio.run(render())

    assert (result.slides, result.missing, result.script_errors) == (3, [], [])
    with zipfile.ZipFile(target) as archive:
        pictures = _pictures(archive)
    assert [picture.size for picture in pictures] == [(1920, 1080)] * 3
    wanted = [(255, 0, 255)] * 3 if name == "faded" else _COLOURS
    for picture, colour in zip(pictures, wanted, strict=True):
        corners = [(4, 1075), (1915, 1075), (960, 540), (1915, 300)]
        assert [picture.getpixel(corner) for corner in corners] == [colour] * 4


def test_a_picture_deck_is_exact_and_has_its_titles_words_and_notes(render: Any) -> None:
    dot = io.BytesIO()
    Image.new("RGB", (3, 3), (1, 2, 3)).save(dot, "PNG")
    html = (
        "<!doctype html><title>All of it</title><style>body{margin:0}.slide{width:1280px;height:720px}"
        ".tall{height:1440px;background:#0f0}</style><section class=slide data-notes='say this'><h1>A\x07 title</h1>"
        "<p>and words</p></section><section class='slide tall'></section>"
        "<section class=slide style='background:url(assets/img/dot.png)'>"
        "<aside class=notes hidden>and that</aside></section>"
    )

    result, archive = render(html, assets={"img/dot.png": dot.getvalue()}, name="my deck")

    assert (result["slides"], result["width"], result["height"], result["missing"]) == (3, 1280, 720, [])
    assert [each["done"] for each in result["said"] if each.get("stage") == "slides"] == [1, 2, 3]
    names = ["slides/slide_001.png", "slides/slide_002.png", "slides/slide_003.png", "my deck.pptx"]
    assert archive.namelist() == names
    assert {member.compress_type for member in archive.infolist()} == {zipfile.ZIP_STORED}
    assert [picture.size for picture in _pictures(archive)] == [(1280, 720), (1280, 1440), (1280, 720)]
    assert _pictures(archive)[2].getpixel((5, 5)) == (1, 2, 3)
    deck = Presentation(io.BytesIO(archive.read("my deck.pptx")))
    assert (deck.slide_width, deck.slide_height, deck.core_properties.title) == (12192000, 6858000, "All of it")
    first, second, third = deck.slides
    picture = first.shapes[-1]
    assert (picture.left, picture.top, picture.width, picture.height) == (0, 0, 12192000, 6858000)
    assert picture.image.blob == archive.read("slides/slide_001.png")
    assert "and words" in picture._element.nvPicPr.cNvPr.get("descr")
    assert first.shapes.title.text == "A title"
    assert [slide.notes_slide.notes_text_frame.text for slide in (first, third)] == ["say this", "and that"]
    fitted = second.shapes[-1]
    assert (fitted.left, fitted.top, fitted.width, fitted.height) == (3048000, 0, 6096000, 6858000)


def test_scripts_styles_and_fonts_of_the_web_come_from_installed_packages(
    render: Any, office_image: SandboxImage
) -> None:
    with open(os.path.join(os.path.dirname(__file__), "data", "web_deck.html"), encoding="utf-8") as file:
        html = file.read()

    result, archive = render(html, mirror=os.path.join(office_image.path, "venv/lib/node_modules"))

    assert (result["slides"], result["missing"], result["script_errors"]) == (6, [], [])
    pictures = _pictures(archive)
    assert {name: pictures[at].getpixel(place) for name, (at, place, _) in _ON_WEB_DECK.items()} == {
        name: colour for name, (_, _, colour) in _ON_WEB_DECK.items()
    }
    assert (0xEC, 0xEC, 0xFF) in {colour for _, colour in pictures[4].getcolors(100_000)}
    alt = Presentation(io.BytesIO(archive.read("presentation.pptx"))).slides[0].shapes[-1]._element.nvPicPr.cNvPr
    assert "module 6" in alt.get("descr")


def test_a_started_browser_waits_for_one_job_and_then_ends(program: None, tmp_path: Any) -> None:
    del program
    (tmp_path / "index.html").write_text("<section class=slide style='width:640px;height:360px'>x</section>")
    (tmp_path / "job.json").write_text(json.dumps({"editable": True}))
    command = [sys.executable, "-m", "warren.render.job", "--warm"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as warm:
        assert warm.stdin is not None
        assert warm.stdout is not None
        assert json.loads(warm.stdout.readline()) == {"type": "ready"}
        rest, _ = warm.communicate(f"{tmp_path}/job.json\n{tmp_path}/job.json\n", timeout=_DEADLINE_S)

    assert warm.returncode == 0
    assert [json.loads(line)["type"] for line in rest.splitlines()].count("done") == 1
    assert json.loads((tmp_path / "result.json").read_text())["slides"] == 1


def test_an_idle_browser_exits(program: None) -> None:
    del program
    command = [sys.executable, "-m", "warren.render.job", "--warm"]
    ran = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=_DEADLINE_S, check=False)

    assert (ran.returncode, ran.stdout) == (0, b'{"type": "ready"}\n')


def test_a_job_that_cannot_be_read_says_so(render: Any) -> None:
    result, _ = render("<section class=slide>x</section>", nonsense=1)

    assert (result["ok"], result["error"]["code"]) == (False, "bad_job")
