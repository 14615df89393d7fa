"""Captures the shown slide: the browser's own snapshot, and the values that it lacks. Page content is untrusted."""

from __future__ import annotations

import base64
import binascii
import json
import math
from typing import TYPE_CHECKING, Any

from warren.render.browser.cdp import CallRefused, ScriptFailed
from warren.render.capture.raster import rasterise
from warren.render.capture.scripts import CHANGES, CHART, DRAWING, INK, MEASURE
from warren.render.scene.build import wanted
from warren.render.scene.fonts import Painted
from warren.render.scene.formula import formulas_of
from warren.render.scene.raw import FontKey, Image, RawSlide
from warren.render.scene.scripts import font_key, shorthand
from warren.render.scene.snapshot import Page
from warren.render.scene.styles import STYLES

if TYPE_CHECKING:
    from warren.render.browser.cdp import Session
    from warren.render.scene.snapshot import Node

_MOST_FONTS = 200
_MOST_METRICS = 400
_MOST_INKS = 600
_MOST_DRAWINGS = 200
_MOST_CHARTS = 24
_MOST_IMAGES = 200
_LONGEST = 400_000
_MOST_IMAGE_BYTES = 30 << 20


class Capture:
    """Captures the slides of one page; values that many slides share are requested once."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._metrics: dict[str, tuple[float, float]] = {}
        self._fonts: dict[FontKey, tuple[Painted, ...]] = {}
        self._inks: dict[tuple[str, str], tuple[float, float, float, float]] = {}
        self._images: dict[str, Image] = {}
        self._page: Page | None = None
        self._changes: object = None
        self._is_ready = False

    async def slide(self, node: int, index: int) -> RawSlide:
        """Capture the slide whose element has this backend node id. Raises SnapshotError and those of `cdp.py`."""
        if not self._is_ready:
            await self._session.call("DOM.enable")
            await self._session.call("CSS.enable")
            self._is_ready = True
        raw = RawSlide(index, node, await self._snapshot(), self._metrics, self._fonts, self._inks, images=self._images)
        _, nodes = raw.tree()
        # WHY anew for each slide: showing another slide may change the document, and numbers of nodes go with it.
        await self._session.call("DOM.getDocument", {"depth": 0})
        await self._ask_fonts(nodes)
        await self._ask_metrics(nodes)
        await self._ask_inks(nodes)
        await self._ask_drawings(raw, nodes)
        await self._ask_charts(raw, nodes)
        requests, images = wanted(raw)
        if images - self._images.keys():
            await self._ask_images(images)
            requests, _ = wanted(raw)
        raw.rasters = await rasterise(self._session, requests, raw.page.corner(node))
        return raw

    async def _snapshot(self) -> Page:
        """Return the snapshot; the previous one if the page has not changed, since a large page reads slowly."""
        changes = await self._session.evaluate(CHANGES)
        if self._page is None or changes != self._changes:
            params = {"computedStyles": list(STYLES), "includePaintOrder": True}
            self._page = Page(await self._session.call("DOMSnapshot.captureSnapshot", params))
            self._changes = changes
        return self._page

    async def _ask_fonts(self, nodes: list[Node]) -> None:
        asked: dict[FontKey, int] = {}
        for node in nodes:
            if node.text is not None and node.text.strip():
                asked.setdefault(font_key(node, node.text), node.backend)
        missing = [(key, backend) for key, backend in asked.items() if key not in self._fonts][:_MOST_FONTS]
        if not missing:
            return
        params = {"backendNodeIds": [backend for _, backend in missing]}
        numbers = (await self._session.call("DOM.pushNodesByBackendIdsToFrontend", params))["nodeIds"]
        for (key, _), number in zip(missing, numbers, strict=True):
            try:
                answer = await self._session.call("CSS.getPlatformFontsForNode", {"nodeId": number})
            except CallRefused:
                continue
            fonts = sorted(answer.get("fonts", []), key=lambda font: -font.get("glyphCount", 0))
            self._fonts[key] = tuple(
                Painted(str(font.get("familyName", ""))[:200], str(font.get("postScriptName", ""))[:200])
                for font in fonts[:12]
            )

    async def _ask_metrics(self, nodes: list[Node]) -> None:
        asked = {shorthand(node.parent) for node in nodes if node.text is not None and node.parent is not None}
        missing = [font for font in asked if font not in self._metrics][:_MOST_METRICS]
        if not missing:
            return
        found = await self._session.evaluate(f"({MEASURE})({json.dumps(missing)})")
        for font, values in zip(missing, found, strict=False):
            if all(isinstance(value, int | float) and math.isfinite(value) and value >= 0 for value in values):
                self._metrics[font] = (float(values[0]), float(values[1]))

    async def _ask_inks(self, nodes: list[Node]) -> None:
        _, inside = formulas_of(nodes)
        asked = {
            (shorthand(node.parent), node.text.strip())
            for node in nodes
            if node.text is not None and len(node.text.strip()) == 1 and id(node) in inside and node.parent is not None
        }
        missing = sorted(asked - self._inks.keys())[:_MOST_INKS]
        if not missing:
            return
        found = await self._session.evaluate(f"({INK})({json.dumps(missing)})")
        for key, values in zip(missing, found, strict=False):
            if all(isinstance(value, int | float) and math.isfinite(value) for value in values):
                left, up, right, down = (float(value) for value in values)
                self._inks[key] = (left, up, right, down)

    async def _ask_drawings(self, raw: RawSlide, nodes: list[Node]) -> None:
        drawings = [
            node
            for node in nodes
            if node.name == "svg" and node.is_visible and not (node.parent and node.parent.is_svg)
        ]
        for node in drawings[:_MOST_DRAWINGS]:
            raw.svgs[node.backend] = await self._on(node.backend, DRAWING, self._session.world)

    async def _ask_charts(self, raw: RawSlide, nodes: list[Node]) -> None:
        charts = [node for node in nodes if node.name == "canvas" or "_echarts_instance_" in node.attributes]
        for node in charts[:_MOST_CHARTS]:
            said = await self._on(node.backend, CHART, None)
            try:
                raw.charts[node.backend] = json.loads(said) if said else None
            except (ValueError, RecursionError):
                continue

    async def _on(self, backend: int, script: str, world: int | None) -> str:
        """Run a script on one element, in our world or the page's; returns an empty string for any other value."""
        params: dict[str, Any] = {"backendNodeId": backend, "objectGroup": "capture"}
        if world is not None:
            params["executionContextId"] = world
        try:
            resolved = await self._session.call("DOM.resolveNode", params)
            answer = await self._session.call(
                "Runtime.callFunctionOn",
                {
                    "objectId": resolved["object"]["objectId"],
                    "functionDeclaration": script,
                    "arguments": [{"value": _LONGEST}],
                    "returnByValue": True,
                },
                timeout_s=10.0,
            )
        except (CallRefused, ScriptFailed, KeyError):
            return ""
        value = answer.get("result", {}).get("value", "")
        return value if isinstance(value, str) and len(value) <= _LONGEST else ""

    async def _ask_images(self, addresses: set[str]) -> None:
        for address in sorted(addresses - self._images.keys())[:_MOST_IMAGES]:
            params = {"frameId": self._session.frame_id, "url": address}
            try:
                answer = await self._session.call("Page.getResourceContent", params)
                text = answer.get("content", "")
                content = base64.b64decode(text) if answer.get("base64Encoded") else text.encode()
            except (CallRefused, binascii.Error, ValueError):
                content = b""
            if len(content) <= _MOST_IMAGE_BYTES:
                mime = "image/svg+xml" if content.lstrip()[:5] in {b"<svg ", b"<?xml"} else ""
                self._images[address] = Image(content, mime)
