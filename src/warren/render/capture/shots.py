"""Takes the picture of a slide that is in the window."""

from __future__ import annotations

import base64
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from warren.render.browser.browser import HEIGHT, WIDTH

if TYPE_CHECKING:
    from warren.render.browser.cdp import Session
    from warren.render.capture.slides import Shown

_TIMEOUT_S = 60.0


@dataclass(frozen=True, slots=True)
class Shot:
    """A picture of a slide, and the size of the slide in CSS pixels."""

    png: bytes = field(repr=False)
    width: float
    height: float


async def take_shot(session: Session, shown: Shown) -> Shot:
    """Take the picture of a slide, in its own size."""
    params: dict[str, Any] = {"format": "png", "optimizeForSpeed": True, "captureBeyondViewport": False}
    x, y = round(shown.x), round(shown.y)
    width, height = max(1, round(shown.width)), max(1, round(shown.height))
    if (x, y, width, height) != (0, 0, WIDTH, HEIGHT):
        scrolled = await session.evaluate("[scrollX, scrollY]")
        clip = {"x": x + scrolled[0], "y": y + scrolled[1], "width": width, "height": height, "scale": 1}
        params |= {"clip": clip, "captureBeyondViewport": x + width > WIDTH or y + height > HEIGHT}
    answer = await session.call("Page.captureScreenshot", params, timeout_s=_TIMEOUT_S)
    return Shot(base64.b64decode(answer["data"]), width, height)
