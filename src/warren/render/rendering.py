"""One render from the loaded browser to the finished ZIP: one page load, one picture of each slide."""

from __future__ import annotations

import asyncio
import time
import zipfile
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from warren.render.browser.deck import RenderFailed
from warren.render.browser.page import Page
from warren.render.browser.settle import settle
from warren.render.capture.slides import Slides, take_shot
from warren.render.pptx.pictures_deck import PictureDeck

if TYPE_CHECKING:
    from collections.abc import Callable

    from warren.render.browser.browser import Browser
    from warren.render.browser.deck import Deck
    from warren.render.browser.mirror import Mirror
    from warren.render.capture.slides import Shot, Slide
    from warren.render.editable import EditableDeck
    from warren.render.job import Job
    from warren.render.scene.raw import RawSlide


@dataclass(slots=True, kw_only=True)
class Rendered:
    """The outcome of a render."""

    slides: int = 0
    width: int = 0
    height: int = 0
    fallbacks: list[dict[str, Any]] = field(default_factory=list)
    """Slides of an editable deck that became pictures after all: `slide` from 1, and `reason`."""
    missing: list[dict[str, Any]] = field(default_factory=list)
    """Requests of the deck that failed: `url` and `count`."""
    script_errors: list[str] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)


class Output:
    """A ZIP on disk, uncompressed and bounded in size. Used by one thread at a time."""

    def __init__(self, path: str, max_bytes: int) -> None:
        self._archive = zipfile.ZipFile(path, "w", zipfile.ZIP_STORED)
        self._max_bytes = max_bytes
        self._now = time.gmtime()[:6]
        self.size = 0

    def add(self, name: str, content: bytes) -> None:
        """Add a file. Raises RenderFailed above the size limit."""
        self.size += len(content)
        if self.size > self._max_bytes:
            raise RenderFailed(
                "output_too_large", f"render output exceeds max size of {self._max_bytes} bytes while adding {name}"
            )
        member = zipfile.ZipInfo(name, self._now)
        member.external_attr = 0o644 << 16
        self._archive.writestr(member, content)

    def close(self) -> None:
        """Write the central directory, without which the ZIP is not valid."""
        self._archive.close()


class Rendering:
    """Renders one deck. Calls `tell(stage, done, total)` with its progress."""

    def __init__(self, browser: Browser, job: Job, tell: Callable[[str, int, int], None]) -> None:
        self._browser = browser
        self._job = job
        self._tell = tell
        self._began = time.monotonic()
        self.result = Rendered()

    async def run(self, deck: Deck, mirror: Mirror | None) -> Rendered:
        """Render. Raises RenderFailed and the exceptions of `cdp.py`."""
        page = Page(self._browser, deck, mirror)
        output = Output(self._job.zip, self._job.max_output_bytes)
        try:
            self._tell("load", 0, 1)
            await page.load()
            self._lap("load")
            await settle(page)
            page.check()
            self._lap("settle")
            await self._make(page, output)
        finally:
            self.result.missing = [{"url": url, "count": count} for url, count in page.missing.items()]
            self.result.script_errors = page.errors
            output.close()
        return self.result

    async def _make(self, page: Page, output: Output) -> None:
        slides = Slides(page)
        found = await slides.find(self._job.max_slides)
        deck = await self._new_deck(page)
        self.result.slides = len(found)
        self._lap("find")
        behind: asyncio.Task[None] | None = None
        for index, slide in enumerate(found):
            shown = await slides.show(index, with_node=self._job.editable)
            shot = await take_shot(page.session, shown)
            raw = await deck.capture(shown)
            if index == 0:
                self.result.width, self.result.height = round(shot.width), round(shot.height)
            if behind is not None:
                await behind
            # A thread writes this slide while the next one is shown and captured.
            behind = asyncio.create_task(asyncio.to_thread(_keep, output, deck, shot, slide, raw))
            self._tell("slides", index + 1, len(found))
        assert behind is not None
        await behind
        self._lap("slides")
        self._tell("write", 0, 1)
        output.add(f"{self._job.name}.pptx", await asyncio.to_thread(deck.finish))
        self.result.fallbacks = [{"slide": at + 1, "reason": deck.reasons[at]} for at in sorted(deck.reasons)]
        self._lap("write")

    async def _new_deck(self, page: Page) -> PictureDeck | EditableDeck:
        title, lang = await page.session.evaluate("[document.title, document.documentElement.lang]")
        if not self._job.editable:
            return PictureDeck(str(title))
        # WHY here: half of the renders do not need this import and start faster without it.
        from warren.render.editable import EditableDeck

        return EditableDeck(page.session, str(title), str(lang))

    def _lap(self, stage: str) -> None:
        now = time.monotonic()
        self.result.seconds[stage] = round(now - self._began, 3)
        self._began = now


def _keep(output: Output, deck: PictureDeck | EditableDeck, shot: Shot, slide: Slide, raw: RawSlide | None) -> None:
    deck.add(raw, shot, slide)
    output.add(f"slides/slide_{deck.count:03d}.png", shot.png)
