"""Screenshots of single elements: everything else is hidden, their children and their text too."""

from __future__ import annotations

import base64
import io
import math
from typing import TYPE_CHECKING, Any

from PIL import Image

from warren.render.scene.raw import Raster

if TYPE_CHECKING:
    from collections.abc import Sequence

    from warren.render.browser.cdp import Session
    from warren.render.scene.paint import Request
    from warren.render.scene.snapshot import Rect

_MARK = "data-warren-paint"
_MOST = 400
_MOST_SHOTS = 12
_STYLE = """
html, html *, html *::before, html *::after, html *::marker {
  visibility: hidden !important; transition: none !important; }
[MARK~=own], [MARK~=tree], [MARK~=tree] *, [MARK~=glyphs], [MARK~=before]::before, [MARK~=after]::after,
[MARK~=glyphs-before]::before, [MARK~=glyphs-after]::after,
[MARK~=cast], [MARK~=cast-before]::before, [MARK~=cast-after]::after {
  visibility: visible !important; }
[MARK~=own], [MARK~=before]::before, [MARK~=after]::after,
[MARK~=cast], [MARK~=cast-before]::before, [MARK~=cast-after]::after {
  color: transparent !important; -webkit-text-fill-color: transparent !important;
  text-shadow: none !important; text-decoration-color: transparent !important; }
[MARK~=glyphs], [MARK~=glyphs-before]::before, [MARK~=glyphs-after]::after {
  background: none !important; border-color: transparent !important; box-shadow: none !important; }
[MARK~=cast], [MARK~=cast-before]::before, [MARK~=cast-after]::after {
  border-color: transparent !important; outline-color: transparent !important; }
[MARK~=tree] text, [MARK~=tree] text *, [MARK~=tree] foreignObject, [MARK~=tree] foreignObject * {
  visibility: hidden !important; }
""".replace("MARK", _MARK)
_CLEAR = "html, body { background: transparent !important; }\n"
_TIMEOUT_S = 20.0


async def rasterise(session: Session, requests: Sequence[Request], corner: tuple[float, float]) -> dict[str, Raster]:
    """Take the requested pictures. `corner` is the slide's, in pixels of the document."""
    wanted = list(requests)[:_MOST]
    if not wanted:
        return {}
    sheet = (await session.call("CSS.createStyleSheet", {"frameId": session.frame_id}))["styleSheetId"]
    taken: dict[str, Raster] = {}
    try:
        transparent = {"color": {"r": 0, "g": 0, "b": 0, "a": 0}}
        await session.call("Emulation.setDefaultBackgroundColorOverride", transparent)
        for group in _groups(wanted)[:_MOST_SHOTS]:
            taken |= await _take(session, sheet, group, corner)
    finally:
        await session.call("CSS.setStyleSheetText", {"styleSheetId": sheet, "text": ""})
        await session.call("Emulation.setDefaultBackgroundColorOverride", {})
    return taken


def _groups(requests: list[Request]) -> list[list[Request]]:
    """Group elements that do not touch, to be taken in one picture."""
    groups: list[list[Request]] = []
    for request in sorted(requests, key=lambda one: -one.rect.width * one.rect.height):
        for group in groups:
            alike = group[0].scale == request.scale and group[0].key != "backdrop" and request.key != "backdrop"
            if alike and not any(one.rect.meet(request.rect) for one in group):
                group.append(request)
                break
        else:
            groups.append([request])
    return groups


async def _take(session: Session, sheet: str, group: list[Request], corner: tuple[float, float]) -> dict[str, Raster]:
    is_backdrop = group[0].key == "backdrop"
    nodes = await _marked(session, group)
    text = _STYLE if is_backdrop else _STYLE + _CLEAR
    await session.call("CSS.setStyleSheetText", {"styleSheetId": sheet, "text": text})
    try:
        area = _area([request.rect for request in group])
        scale = group[0].scale
        clip = {"x": corner[0] + area[0], "y": corner[1] + area[1], "width": area[2], "height": area[3], "scale": scale}
        params: dict[str, Any] = {"format": "png", "optimizeForSpeed": True, "clip": clip}
        answer = await session.call("Page.captureScreenshot", params, timeout_s=_TIMEOUT_S)
    finally:
        for node in nodes:
            session.post("DOM.removeAttribute", {"nodeId": node, "name": _MARK})
    return _cut(base64.b64decode(answer["data"]), group, area, scale)


async def _marked(session: Session, group: list[Request]) -> list[int]:
    backends = [request.backend for request in group]
    words = [_word(request) for request in group]
    nodes: list[int] = (await session.call("DOM.pushNodesByBackendIdsToFrontend", {"backendNodeIds": backends}))[
        "nodeIds"
    ]
    marks: dict[int, set[str]] = {}
    for node, word in zip(nodes, words, strict=True):
        marks.setdefault(node, set()).add(word)
    if group[0].key == "backdrop":
        marks = await _with_ancestors(session, nodes[0])
    for node, names in marks.items():
        if node:
            value = {"nodeId": node, "name": _MARK, "value": " ".join(sorted(names))}
            await session.call("DOM.setAttributeValue", value)
    return [node for node in marks if node]


def _word(request: Request) -> str:
    if request.kind in {"glyphs", "cast"} and request.pseudo:
        return f"{request.kind}-{request.pseudo}"
    return request.pseudo or request.kind


async def _with_ancestors(session: Session, node: int) -> dict[int, set[str]]:
    """Name also the ancestors, for the slide's background is what they paint, too."""
    resolved = (await session.call("DOM.resolveNode", {"nodeId": node, "executionContextId": session.world}))["object"]
    found = {node: {"own"}}
    script = "function() { return this.parentElement; }"
    holder = resolved["objectId"]
    for _ in range(64):
        params = {"objectId": holder, "functionDeclaration": script}
        parent = (await session.call("Runtime.callFunctionOn", params))["result"]
        if "objectId" not in parent:
            break
        holder = parent["objectId"]
        found[(await session.call("DOM.requestNode", {"objectId": holder}))["nodeId"]] = {"own"}
    return found


def _area(rects: list[Rect]) -> tuple[int, int, int, int]:
    left = math.floor(min(rect.x for rect in rects))
    top = math.floor(min(rect.y for rect in rects))
    right = math.ceil(max(rect.right for rect in rects))
    bottom = math.ceil(max(rect.bottom for rect in rects))
    return left, top, max(1, right - left), max(1, bottom - top)


def _cut(png: bytes, group: list[Request], area: tuple[int, int, int, int], scale: float) -> dict[str, Raster]:
    if len(group) == 1:
        return {group[0].key: Raster(float(area[0]), float(area[1]), float(area[2]), float(area[3]), png)}
    taken: dict[str, Raster] = {}
    with Image.open(io.BytesIO(png)) as whole:
        whole.load()
        for request in group:
            left, top, width, height = _area([request.rect])
            x, y = left - area[0], top - area[1]
            box = (round(x * scale), round(y * scale), round((x + width) * scale), round((y + height) * scale))
            out = io.BytesIO()
            whole.crop(box).save(out, "PNG", compress_level=1)
            taken[request.key] = Raster(float(left), float(top), float(width), float(height), out.getvalue())
    return taken
