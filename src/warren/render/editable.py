"""Editable PowerPoint: real text and shapes. A slide that fails becomes its picture, with the reason."""

from __future__ import annotations

from typing import TYPE_CHECKING

from warren.render.browser.cdp import BrowserGone
from warren.render.capture.capture import Capture
from warren.render.pptx import deck
from warren.render.pptx.xml import plain
from warren.render.scene.build import build_slide
from warren.render.scene.scene import Box, Deck, Picture
from warren.render.scene.scene import Slide as Scene

if TYPE_CHECKING:
    from warren.render.browser.cdp import Session
    from warren.render.capture.slides import Shot, Shown, Slide
    from warren.render.scene.raw import RawSlide

_LONGEST_REASON = 300


class EditableDeck:
    """Captures each slide while it is shown, builds its scene in a thread, and writes all at the end."""

    def __init__(self, session: Session, title: str, lang: str) -> None:
        self._capture = Capture(session)
        self._title = plain(title)
        self._lang = lang
        self._scenes: list[Scene] = []
        self._pictures: list[Scene] = []
        self.reasons: dict[int, str] = {}
        """Why a slide, from 0, is a picture."""

    async def capture(self, shown: Shown) -> RawSlide | None:
        """Capture the slide that is in the window; None on failure."""
        try:
            return await self._capture.slide(shown.node, shown.index)
        except BrowserGone:
            raise
        except Exception as error:  # noqa: BLE001 - a hostile page can make anything go wrong, and has its picture
            self._note(shown.index, error)
            return None

    def add(self, raw: RawSlide | None, shot: Shot, slide: Slide) -> None:
        """Add a slide at the end."""
        index = self.count
        picture = _picture(shot, slide)
        scene = picture
        if raw is not None:
            try:
                scene = build_slide(raw, notes=plain(slide.notes))
            except Exception as error:  # noqa: BLE001 - as above
                self._note(index, error)
        self._scenes.append(scene)
        self._pictures.append(picture)

    @property
    def count(self) -> int:
        """How many slides it has by now."""
        return len(self._scenes)

    def finish(self) -> bytes:
        """Return the PowerPoint file."""
        try:
            return self._write(self._scenes)
        except Exception:  # noqa: BLE001 - as above; the next loop finds the slides that fail
            written = [self._checked(index) for index in range(len(self._scenes))]
            return self._write(written)

    def _checked(self, index: int) -> Scene:
        try:
            self._write([self._scenes[index]])
        except Exception as error:  # noqa: BLE001 - as above
            self._note(index, error)
            return self._pictures[index]
        return self._scenes[index]

    def _write(self, scenes: list[Scene]) -> bytes:
        return deck.write_deck(Deck(slides=tuple(scenes), title=self._title, lang=self._lang or "en-US"))

    def _note(self, index: int, error: Exception) -> None:
        said = str(error).strip().split("\n")[0]
        self.reasons[index] = f"{type(error).__name__}: {said}"[:_LONGEST_REASON]


def _picture(shot: Shot, slide: Slide) -> Scene:
    box = Box(0, 0, shot.width, shot.height)
    words = plain(slide.text)[:2000] or plain(slide.title)
    picture = Picture(box=box, data=shot.png, alt=words, name="Slide")
    return Scene(
        width=shot.width, height=shot.height, items=(picture,), title=plain(slide.title), notes=plain(slide.notes)
    )
