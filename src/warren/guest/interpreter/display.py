"""Displays: any object as a bounded bundle of MIME types, sent to the agent."""

from __future__ import annotations

import base64
import json
import sys
from typing import TYPE_CHECKING, Any

from warren.guest.interpreter import failure
from warren.guest.wire.claims import is_bounded

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

MAX_BYTES = (4 << 20) - 4096
"""The most that one display may take as JSON: a frame's payload, less the bundle's own keys."""
TOTAL_BYTES = 16 << 20
"""The most that all displays of one execution may take."""
_TEXT_CHARS = 256 << 10
_LAST_WORD = 4096
"""Reserved for the notice that a display was dropped."""

_METHODS = {
    "_repr_html_": "text/html",
    "_repr_markdown_": "text/markdown",
    "_repr_svg_": "image/svg+xml",
    "_repr_png_": "image/png",
    "_repr_jpeg_": "image/jpeg",
    "_repr_latex_": "text/latex",
    "_repr_json_": "application/json",
    "_repr_javascript_": "application/javascript",
    "_repr_pdf_": "application/pdf",
}

Bundle = dict[str, str]

_ENCODER = json.JSONEncoder(ensure_ascii=False, default=str, allow_nan=False)


class Screen:
    """The sink of displays: the agent during a cell, none otherwise."""

    def __init__(self) -> None:
        self._send: Callable[[str, bytes, bool], None] | None = None
        self._room = 0
        self._is_full = False

    def open(self, send: Callable[[str, bytes, bool], None]) -> None:
        """Begin the displays of a cell; `send(kind, json, is_last)` gets each."""
        self._send, self._room, self._is_full = send, TOTAL_BYTES - _LAST_WORD, False

    def close(self) -> None:
        """End the displays of a cell: later ones, from threads, belong to no cell."""
        self._send = None

    def show(
        self, kind: str, data: Mapping[str, Any], metadata: Mapping[str, Any] | None = None, *, is_last: bool = False
    ) -> None:
        """Send one bundle, `kind` result or display, cut to fit; the last may wait for the end of the cell."""
        if self._send is None:
            return
        payload = _fit(data, dict(metadata or {}))
        if len(payload) > self._room:
            if self._is_full:
                return
            self._is_full = True
            payload = _encode({"text/plain": f"[a display was dropped: over {TOTAL_BYTES >> 20} MiB in one cell]"}, {})
        self._room -= len(payload)
        self._send(kind, payload, is_last)


screen = Screen()
"""The screen of this process: a matplotlib backend and IPython's publisher are found by name, not passed."""


def build_bundle(value: object) -> tuple[dict[str, Any], dict[str, Any]]:
    """Get every form that an object offers: (data, metadata). A form that raises is left out, with a note."""
    data: dict[str, Any] = {"text/plain": _text(value)}
    metadata: dict[str, Any] = {}
    # A class offers its forms for its instances, not for itself; a mock or a remote proxy answers to every name.
    if isinstance(value, type) or _call(value, "_repr_of_something_that_answers_to_everything_") is not None:
        return data, metadata
    for name, mime in _METHODS.items():
        _merge(data, metadata, mime, _call(value, name))
    offered = _call(value, "_repr_mimebundle_", include=None, exclude=None)
    if isinstance(offered, tuple) and len(offered) == 2:
        offered, more = offered
        metadata.update(more if isinstance(more, dict) else {})
    if isinstance(offered, dict):
        data.update({mime: form for mime, form in offered.items() if isinstance(mime, str)})
    return data, metadata


def show(*values: object, raw: bool = False, metadata: Mapping[str, Any] | None = None, **_: object) -> None:
    """Display objects: the `display` of a kernel without IPython."""
    for value in values:
        if raw and isinstance(value, dict):
            screen.show("display", value, metadata)
        else:
            data, own = build_bundle(value)
            screen.show("display", data, {**own, **(metadata or {})})


def _merge(data: dict[str, Any], metadata: dict[str, Any], mime: str, form: object) -> None:
    if isinstance(form, tuple) and len(form) == 2 and isinstance(form[1], dict):
        form, metadata[mime] = form
    if form is not None:
        data[mime] = form


def _text(value: object) -> str:
    try:
        return failure.cut(repr(value), _TEXT_CHARS)
    except Exception as error:
        _note(error)
        return f"<{type(value).__name__}: its repr failed>"


def _call(value: object, name: str, **arguments: object) -> object:
    try:
        method = getattr(value, name, None)
        return method(**arguments) if callable(method) else None
    except Exception as error:
        _note(error)
        return None


def _note(error: BaseException) -> None:
    described = failure.describe(error)
    print(f"[one form of a display failed]\n{described['traceback']}", end="", file=sys.stderr)


def _fit(data: Mapping[str, Any], metadata: dict[str, Any]) -> bytes:
    """Encode a bundle, dropping its largest form until the rest fits one frame."""
    if not is_bounded(metadata):
        metadata = {}
    bundle = {str(mime)[:256]: text for mime, form in data.items() if (text := _to_text(form)) is not None}
    dropped: list[str] = []
    while len(payload := _encode(bundle, metadata)) > MAX_BYTES:
        metadata = {}
        if not bundle:
            break
        largest = max(bundle, key=lambda mime: len(bundle[mime]))
        dropped.append(f"{largest} ({len(bundle.pop(largest))} characters)")
        text = failure.cut(bundle.pop("text/plain", ""), _TEXT_CHARS)
        bundle["text/plain"] = f"{text}\n[left out, over {-(-MAX_BYTES >> 20)} MiB: {', '.join(dropped)}]".lstrip("\n")
    return payload


def _to_text(form: object) -> str | None:
    if isinstance(form, str):
        return form
    if isinstance(form, bytes | bytearray | memoryview):
        return base64.b64encode(form).decode("ascii")
    try:
        return json.dumps(form, ensure_ascii=False, default=str)
    except (TypeError, ValueError, RecursionError):
        return None


def _encode(bundle: Bundle, metadata: Mapping[str, Any]) -> bytes:
    try:
        text = _ENCODER.encode({"data": bundle, "metadata": metadata})
    except (TypeError, ValueError, RecursionError):
        text = json.dumps({"data": bundle, "metadata": {}}, ensure_ascii=False)
    # A lone surrogate becomes its JSON escape.
    return text.encode("utf-8", "backslashreplace")
