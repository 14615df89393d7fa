"""Results as HTML, for notebooks.

Rule 1: what came out of a sandbox is hostile, and a notebook's page can run code as its user. Text is escaped.
Rule 2: HTML that a program made goes into a frame that may run no script, reach no page and fetch nothing from where
only the viewer can; images go into `<img>`.
Rule 3: what a terminal would obey is taken out of text: IPython shows values there without being asked to print them.
"""

from __future__ import annotations

import base64
import re
from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from warren.sdk.results import Display, Picture, Result

_MOST_TEXT = 100_000
_ANSI = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")
_FETCH_NOTHING = (
    '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; img-src data:; font-src data:; '
    "style-src 'unsafe-inline'\">"
)
_PRE = "margin:0;white-space:pre-wrap"
_BAD = "color:#a40000"
_ROW_PX = 32
_FRAME_PX = (80, 480)


def show_result(result: Result) -> str:
    """Write a result."""
    parts = [show_text(result.stdout), show_text(result.stderr, _BAD)]
    parts += [show_display(each) for each in result.displays]
    if result.error is not None and not result.error.is_told_in(result.stderr):
        parts.append(show_text(result.error.traceback, _BAD))
    if not result.ok:
        parts.append(f'<div style="{_BAD}"><b>{escape(result.explain())}</b></div>')
    return f"<div>{''.join(parts)}</div>"


def show_plain(text: str) -> str:
    """Write text for a terminal: without its colours, and with its other orders as letters."""
    return _CONTROLS.sub(lambda found: found[0].encode("unicode_escape").decode(), _ANSI.sub("", text))


def show_text(text: str, style: str = "") -> str:
    """Write text as it is, but without the colours of a terminal."""
    if not text:
        return ""
    text = _ANSI.sub("", text)
    cut = text if len(text) <= _MOST_TEXT else f"{text[:_MOST_TEXT]}\n… {len(text) - _MOST_TEXT} characters more"
    return f'<pre style="{_PRE};{style}">{escape(cut)}</pre>'


def show_display(display: Display) -> str:
    """Write something that a cell showed, in the richest way that is safe."""
    picture = display.picture
    if picture is not None:
        return show_picture(picture)
    html = display.data.get("text/html")
    if html is not None:
        least, most = _FRAME_PX
        height = min(most, max(least, _ROW_PX * (2 + html.count("<tr"))))
        framed = escape(_FETCH_NOTHING + html)
        return f'<iframe sandbox srcdoc="{framed}" style="width:100%;border:0;height:{height}px"></iframe>'
    return show_text(display.text)


def show_picture(picture: Picture) -> str:
    """Write an image; as `<img>`, in which also an SVG runs nothing."""
    data = base64.b64encode(picture.data).decode()
    return f'<img src="data:{escape(picture.mime)};base64,{data}" style="max-width:100%">'
