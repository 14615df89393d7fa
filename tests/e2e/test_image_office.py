"""The `office` image with the real things: what programs written for any machine do, they do in a sandbox of it."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import pytest

from warren.core.images.catalog import Catalog

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import httpx

    from e2e.serving import RunningService
    from warren.domain.values import Image

pytestmark = pytest.mark.timeout(600)
PNG = b"\x89PNG\r\n\x1a\n"

SCREENSHOT = """
import json, os, subprocess
from playwright.sync_api import sync_playwright

page_text = '''<body style="margin:0"><h1 id="zh" style="font-family:'Noto Sans SC'">标题 Title</h1>
<p id="ro" style="font-family:Roboto,Arial">web</p><p id="em" style="font-family:'Microsoft YaHei'">粗</p></body>'''
with sync_playwright() as p:
    browser = p.chromium.launch()
    page = browser.new_page(viewport={"width": 640, "height": 360})
    page.set_content(page_text)
    page.screenshot(path="page.png")
    page.pdf(path="page.pdf")
    cdp = page.context.new_cdp_session(page)
    cdp.send("DOM.enable")
    cdp.send("CSS.enable")
    root = cdp.send("DOM.getDocument")["root"]["nodeId"]
    painted = {}
    for name in ("zh", "ro", "em"):
        node = cdp.send("DOM.querySelector", {"nodeId": root, "selector": f"#{name}"})["nodeId"]
        fonts = cdp.send("CSS.getPlatformFontsForNode", {"nodeId": node})["fonts"]
        painted[name] = sorted(font["postScriptName"] for font in fonts)
    try:
        reached = page.goto("http://example.com/", timeout=20_000).status
    except Exception as error:
        reached = type(error).__name__
    browser.close()
roboto = subprocess.run(["fc-match", "-f", "%{family}", "Roboto"], capture_output=True, text=True).stdout
cached = os.listdir("/tmp/.cache/fontconfig") if os.path.isdir("/tmp/.cache/fontconfig") else []
running = [open(f"/proc/{pid}/cmdline").read() for pid in os.listdir("/proc") if pid.isdigit()]
left = [each for each in running if "chrom" in each or "playwright" in each]
seen = {"painted": painted, "reached": reached, "roboto": roboto, "cached": cached, "left": left}
print(json.dumps({**seen, "files": os.listdir(".")}))
"""

IN_A_KERNEL = """
import asyncio
from playwright.async_api import async_playwright

async def title():
    async with async_playwright() as p:
        browser = await p.chromium.launch()
        page = await browser.new_page()
        await page.set_content("<title>from a cell</title>")
        return await page.title()

asyncio.run(title())
"""

DOCUMENTS = """
import io, docx, openpyxl, pptx, pypdf, reportlab.pdfgen.canvas, uharfbuzz, fontTools.ttLib
deck = pptx.Presentation("slides.pptx")
print([shape.text for slide in deck.slides for shape in slide.shapes])
word = docx.Document(); word.add_paragraph("words"); word.save("a.docx")
book = openpyxl.Workbook(); book.active["A1"] = 1; book.save("a.xlsx")
canvas = reportlab.pdfgen.canvas.Canvas("a.pdf"); canvas.drawString(9, 9, "drawn"); canvas.save()
print([pypdf.PdfReader(name).pages[0].extract_text().strip() for name in ("a.pdf", "paper.pdf")])
"""

SHELL = r"""
set -e
cat > paper.tex <<'END'
\documentclass{article}\usepackage{lmodern,amsmath,hyperref}\begin{document}$a^2$ on paper\end{document}
END
pdflatex -interaction=nonstopmode -halt-on-error paper.tex > /dev/null
cat > slides.js <<'END'
const PptxGenJS = require("pptxgenjs");
const deck = new PptxGenJS();
deck.addSlide().addText("made by node", { x: 1, y: 1 });
deck.writeFile({ fileName: "slides.pptx" });
END
node slides.js
npm --version > /dev/null
chromium --headless --screenshot=plain.png 'data:text/html,hello' 2> /dev/null > /dev/null
ls paper.pdf slides.pptx plain.png
"""


class Office:
    """A sandbox of the image, on a service of its own."""

    def __init__(self, client: httpx.Client) -> None:
        self.client = client
        made = client.post("/sandboxes", json={"image": "office", "memory_mb": 1024})
        assert made.status_code == 201, made.text
        self.id = made.json()["id"]

    def run(self, **asked: Any) -> dict[str, Any]:
        answer = self.client.post(f"/sandboxes/{self.id}/exec", json={"timeout_seconds": 100, **asked}, timeout=120)
        assert answer.status_code == 200, answer.text
        result: dict[str, Any] = answer.json()
        return result

    def print(self, **asked: Any) -> str:
        result = self.run(**asked)
        assert result["exit_code"] == 0, result
        said: str = result["stdout"]
        return said

    def read(self, path: str) -> bytes:
        return self.client.get(f"/sandboxes/{self.id}/files/{path}").content


@pytest.fixture
def office(serve: Callable[..., RunningService], office_image: Image) -> Iterator[Office]:
    assert office_image.name == "office"
    service = serve("local").start()
    with service.client() as client:
        yield Office(client)
    service.stop()


def test_programs_find_a_browser_latex_node_and_every_font(office: Office) -> None:
    seen = json.loads(office.print(code=SCREENSHOT, fresh=True))

    assert office.read("page.png").startswith(PNG)
    assert office.read("page.pdf").startswith(b"%PDF")
    # Bold is a font of its own, not the regular one thickened.
    assert seen["painted"]["zh"] == ["NotoSansCJKsc-Bold"]
    assert seen["painted"]["ro"] == ["LiberationSans"]
    assert seen["roboto"].startswith("Inter")
    assert seen["painted"]["em"] == ["NotoSansCJKsc-Regular"]
    assert seen["reached"] in {403, "Error", "TimeoutError"}
    # The image's own cache of fonts fits, so that no other had to be made; and nothing is left behind.
    assert seen["cached"] == []
    assert seen["left"] == []
    assert sorted(seen["files"]) == ["page.pdf", "page.png"]

    assert "paper.pdf" in office.print(command=SHELL)
    assert office.read("plain.png").startswith(PNG)
    assert office.print(code=DOCUMENTS).splitlines() == ["['made by node']", "['drawn', 'a2 on paper\\n1']"]
    assert "from a cell" in json.dumps(office.run(code=IN_A_KERNEL))

    fonts = Catalog("/nowhere").spec("office").parts.fonts
    asked = "\n".join(f"fc-match --format '%{{family[0]}}\\n' '{name}'" for name in fonts)
    found = dict(zip(fonts, office.print(command=asked).splitlines(), strict=True))
    assert {name: font for name, font in found.items() if font != fonts[name]} == {}


def test_doctor_says_what_an_image_misses_and_what_installs_it(serve: Callable[..., RunningService]) -> None:
    service = serve("bare")
    specs = service.folder.with_suffix(".specs")
    specs.mkdir()
    wanted = '[system]\npackages = ["no-such-one | no-such-two", "libc-bin | libc6"]\ncommands = ["no-such-one"]\n'
    (specs / "rare.toml").write_text(f'name = "rare"\npackages = []\n{wanted}')
    service.choose(image_dirs=str(specs))

    told = json.loads(service.run("doctor", "--json").stdout)

    (rare,) = (each for each in told["images"] if each["name"] == "rare")
    assert rare["missing"] == ["no-such-one"]
    assert rare["fix"].endswith("no-such-one`") or "no-such-one with" in rare["fix"]
    if os.geteuid() != 0:
        built = service.run("image", "build", "rare")
        assert built.returncode == 1
        assert rare["fix"] in built.stderr
