"""One deck through a public converter: `slides_peers.py NAME PAGE TARGET TOOLS`, run with the packages of `TOOLS`."""

from __future__ import annotations

import asyncio
import base64
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

CHROMIUM = {"executable_path": shutil.which("chromium"), "args": ["--no-sandbox"]}
_EXPORT = """async () => {
  const slides = [...document.querySelectorAll('.slide')];
  const made = await domToPptx.exportToPptx(slides, {skipDownload: true, fileName: 'x.pptx'});
  return await new Promise(done => {
    const reader = new FileReader();
    reader.onload = () => done(reader.result.split(',')[1]);
    reader.readAsDataURL(made);
  });
}"""
_PAPER = "@page{size:1920px 1080px;margin:0} .slide{break-after:page} *{-webkit-print-color-adjust:exact}"


def html_to_pptx(page: Path, target: Path, _tools: Path) -> None:
    """Use the package of that name from PyPI, with the Chromium that is here."""
    from html_to_pptx import convert
    from playwright.async_api import BrowserType

    launch = BrowserType.launch

    async def launched(self: Any, **options: Any) -> Any:
        return await launch(self, **{**options, **CHROMIUM})

    BrowserType.launch = launched
    asyncio.run(convert(str(page), str(target)))


def dom_to_pptx(page: Path, target: Path, tools: Path) -> None:
    """Use the package of that name from npm, in the page."""
    with Opened(page) as shown:
        shown.add_script_tag(path=str(tools / "node_modules/dom-to-pptx/dist/dom-to-pptx.bundle.js"))
        target.write_bytes(base64.b64decode(shown.evaluate(_EXPORT)))


def pdf_libreoffice(page: Path, target: Path, _tools: Path) -> None:
    """Let Chromium print and LibreOffice import."""
    folder = Path(tempfile.mkdtemp())
    with Opened(page) as shown:
        shown.emulate_media(media="screen")
        shown.add_style_tag(content=_PAPER)
        size = {"width": "1920px", "height": "1080px", "print_background": True, "prefer_css_page_size": True}
        shown.pdf(path=str(folder / "deck.pdf"), **size)
    office = [
        "soffice",
        f"-env:UserInstallation=file://{folder}/profile",
        "--headless",
        "--infilter=impress_pdf_import",
    ]
    wanted = ["--convert-to", "pptx:Impress MS PowerPoint 2007 XML", "--outdir", str(folder), str(folder / "deck.pdf")]
    subprocess.run([*office, *wanted], check=True, capture_output=True, timeout=280)
    shutil.move(folder / "deck.pptx", target)
    shutil.rmtree(folder, ignore_errors=True)


class Opened:
    """A page of a deck in a browser."""

    def __init__(self, page: Path) -> None:
        self._page = page

    def __enter__(self) -> Any:
        from playwright.sync_api import sync_playwright

        self._driver = sync_playwright().start()
        self._browser = self._driver.chromium.launch(**CHROMIUM)
        shown = self._browser.new_page(viewport={"width": 1920, "height": 1080})
        shown.goto(self._page.as_uri())
        shown.evaluate("document.fonts.ready")
        return shown

    def __exit__(self, *_: object) -> None:
        self._browser.close()
        self._driver.stop()


if __name__ == "__main__":
    name, source, result, packages = sys.argv[1:]
    convert_one = {"html_to_pptx": html_to_pptx, "dom_to_pptx": dom_to_pptx, "pdf_libreoffice": pdf_libreoffice}[name]
    convert_one(Path(source), Path(result), Path(packages))
