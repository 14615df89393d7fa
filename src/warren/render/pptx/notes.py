"""Speaker notes."""

from __future__ import annotations

from typing import Any

from warren.render.pptx.xml import plain

_LONGEST = 100_000


def write_notes(slide: Any, notes: str) -> None:
    """Give `slide` a notes page, if there is anything to say."""
    words = plain(notes).replace("\r\n", "\n").replace("\r", "\n").strip()[:_LONGEST]
    if words:
        slide.notes_slide.notes_text_frame.text = words
