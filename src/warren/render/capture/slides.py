"""Finds the slides of a page, shows one at a time, however the deck hides the others, and takes its picture."""

from __future__ import annotations

import base64
import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from warren.render.browser.browser import HEIGHT, WIDTH
from warren.render.browser.deck import RenderFailed
from warren.render.capture.slides_script import LIBRARY

if TYPE_CHECKING:
    from warren.render.browser.cdp import Session
    from warren.render.browser.page import Page

MAX_SIDE = 4096
_MIN_SIDE = 16
_MAX_TEXT = 4000
_SHOT_S = 60.0


@dataclass(frozen=True, slots=True)
class Slide:
    """One slide as the page describes it."""

    title: str
    notes: str
    text: str


@dataclass(frozen=True, slots=True)
class Shown:
    """A slide that is in the window now: where, in CSS pixels of the window, and of which node of the document."""

    index: int
    x: float
    y: float
    width: float
    height: float
    node: int
    """The browser's `backendNodeId` of its element; 0 unless requested."""


@dataclass(frozen=True, slots=True)
class Shot:
    """A picture of a slide, and the size of the slide in CSS pixels."""

    png: bytes = field(repr=False)
    width: float
    height: float


class Slides:
    """The slides of one page, after `find`."""

    def __init__(self, page: Page) -> None:
        self._page = page
        self._session = page.session
        self.found: tuple[Slide, ...] = ()

    async def find(self, max_slides: int) -> tuple[Slide, ...]:
        """Find them. Raises RenderFailed when there are none, or too many."""
        await self._session.evaluate(LIBRARY)
        count = int(_number(await self._session.evaluate("slides.find()")))
        if count == 0:
            raise RenderFailed("no_slides", "no slide elements found for selector '.slide'")
        if count > max_slides:
            raise RenderFailed("too_many_slides", f"too many slides rendered (max {max_slides})")
        described = await self._session.evaluate(f"slides.describe({_MAX_TEXT})")
        self.found = tuple(Slide(*(_text(each.get(key)) for key in ("title", "notes", "text"))) for each in described)
        if len(self.found) != count:
            raise RenderFailed("page_changed", "the deck changed its slides while it was rendered: let it stand still")
        return self.found

    async def show(self, index: int, *, with_node: bool = True) -> Shown:
        """Bring one slide into the window, alone. Raises RenderFailed when it is gone, or too large."""
        self._page.check()
        box = await self._session.evaluate(f"slides.show({index})")
        # Pictures of elements that were hidden until now are not loaded yet.
        await self._page.answered()
        self._page.check()
        if box is None:
            raise RenderFailed(
                "page_changed", f"the deck removed slide {index + 1} while it was rendered: let it stand still"
            )
        x, y, width, height = (_number(box.get(key)) for key in ("x", "y", "width", "height"))
        if not (_MIN_SIDE <= width <= MAX_SIDE and _MIN_SIDE <= height <= MAX_SIDE):
            raise RenderFailed(
                "slide_size",
                f"slide {index + 1} is {width:.0f} x {height:.0f} pixels: give .slide a size between "
                f"{_MIN_SIDE} and {MAX_SIDE}, for example 1920 x 1080",
            )
        node = await self._session.evaluate_node(f"slides.element({index})") if with_node else 0
        return Shown(index, x, y, width, height, node)


async def take_shot(session: Session, shown: Shown) -> Shot:
    """Take the picture of a slide, in its own size."""
    params: dict[str, Any] = {"format": "png", "optimizeForSpeed": True, "captureBeyondViewport": False}
    x, y = round(shown.x), round(shown.y)
    width, height = max(1, round(shown.width)), max(1, round(shown.height))
    if (x, y, width, height) != (0, 0, WIDTH, HEIGHT):
        scrolled = await session.evaluate("[scrollX, scrollY]")
        clip = {"x": x + scrolled[0], "y": y + scrolled[1], "width": width, "height": height, "scale": 1}
        params |= {"clip": clip, "captureBeyondViewport": x + width > WIDTH or y + height > HEIGHT}
    answer = await session.call("Page.captureScreenshot", params, timeout_s=_SHOT_S)
    return Shot(base64.b64decode(answer["data"]), width, height)


def _number(value: Any) -> float:
    return float(value) if isinstance(value, int | float) and math.isfinite(value) else 0.0


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""
