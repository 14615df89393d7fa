"""Images, drawings and canvases as pictures: the file itself where Office can read it, cut as the page shows it."""

from __future__ import annotations

import base64
import binascii
import io
import re
from dataclasses import replace
from typing import TYPE_CHECKING
from urllib.parse import unquote_to_bytes

from PIL import Image as PillowImage
from PIL import UnidentifiedImageError

from warren.render.scene import css
from warren.render.scene.clip import clips_of, is_inside, radii_of
from warren.render.scene.gradients import layers
from warren.render.scene.icons import painted_area
from warren.render.scene.paint import Canvas, paint_bounds, shadow_of
from warren.render.scene.raw import Image
from warren.render.scene.runs import fonts_of, link_of
from warren.render.scene.scene import Picture
from warren.render.scene.scripts import kind
from warren.render.scene.snapshot import Node, Rect, around

if TYPE_CHECKING:
    from warren.render.scene.blocks import Group

REPLACED = {"img", "canvas", "video", "iframe", "object", "embed", "svg", "input", "progress", "meter", "select"}
_OFFICE = {"PNG": "image/png", "JPEG": "image/jpeg", "GIF": "image/gif"}
_MOST_BYTES = 20 << 20
_MOST_PIXELS = 40_000_000
_MOST_EMOJI = 12
# A drawing is shown larger than it is now and then; twice as many dots keep it sharp.
_SHARP = 2.0


def data_address(address: str) -> Image | None:
    """Return the content of a data: address."""
    head, comma, body = address.partition(",")
    if not comma or not head.startswith("data:") or len(body) > _MOST_BYTES * 2:
        return None
    mime = head[5:].split(";")[0].strip().lower() or "text/plain"
    try:
        content = base64.b64decode(unquote_to_bytes(body)) if head.endswith(";base64") else unquote_to_bytes(body)
    except (binascii.Error, ValueError):
        return None
    return Image(content, mime)


def content_of(canvas: Canvas, address: str) -> Image | None:
    """Return the content of an image; an address that is not known yet is asked for."""
    if address.startswith("data:"):
        return data_address(address)
    found = canvas.raw.images.get(address)
    if found is None and address.startswith(("http://", "https://")):
        canvas.images.add(address)
    return found


def size_of(image: Image) -> tuple[int, int, str] | None:
    """Width, height and Office's name of the kind; None where Office cannot read it."""
    if len(image.data) > _MOST_BYTES:
        return None
    try:
        with PillowImage.open(io.BytesIO(image.data)) as opened:
            width, height = opened.size
            kind = _OFFICE.get(opened.format or "")
            is_plain = opened.mode != "CMYK" and opened.getexif().get(0x0112, 1) == 1
    except (UnidentifiedImageError, OSError, ValueError, SyntaxError, PillowImage.DecompressionBombError):
        return None
    if kind is None or not is_plain or not 0 < width * height <= _MOST_PIXELS:
        return None
    return width, height, kind


def picture(canvas: Canvas, node: Node) -> list[Picture]:
    """Return the picture of an image, drawing, canvas or whatever else is painted from outside the page."""
    if not node.is_visible or node.rect.width < 1 or node.rect.height < 1:
        return []
    made: Picture | None = None
    if node.name == "img":
        made = _image(canvas, node)
    if made is None:
        made = _taken(canvas, node)
    if made is None:
        return []
    words = node.attributes.get("alt") or node.attributes.get("aria-label") or node.attributes.get("title") or ""
    return [replace(made, alt=words[:500], link=link_of(node), name=node.name)]


def _taken(canvas: Canvas, node: Node) -> Picture | None:
    is_drawing = node.name == "svg" or _is_svg(canvas, node)
    is_small = node.rect.width * node.rect.height < 600_000
    scale = _SHARP if is_drawing and is_small else 1.0
    found = canvas.picture(node, paint_bounds(node), kind="tree", scale=scale)
    if found is None or not is_drawing:
        return found
    if node.name == "svg":
        drawing = canvas.raw.svgs.get(node.backend, "").encode()
        fits = is_inside(node.bounds, Rect(0, 0, canvas.root.bounds.width, canvas.root.bounds.height))
        return replace(found, svg=drawing) if drawing and fits and not node.turn else found
    return found


def _is_svg(canvas: Canvas, node: Node) -> bool:
    content = content_of(canvas, node.source or node.attributes.get("src", "")) if node.name == "img" else None
    return content is not None and "svg" in content.mime


def _image(canvas: Canvas, node: Node) -> Picture | None:
    address = node.source or node.attributes.get("src", "")
    content = content_of(canvas, address)
    known = size_of(content) if content else None
    if content is None or known is None or not _is_plain(canvas, node):
        return None
    inner = content_box(node)
    placed = fitted(node.css("object-fit"), node.css("object-position"), inner, (known[0], known[1]))
    if placed is None:
        return None
    rect, crop = placed
    return Picture(
        box=node.box(rect),
        data=content.data,
        mime=known[2],
        crop=crop,
        radii=radii_of(node) if rect.meet(inner) == inner else (0.0, 0.0, 0.0, 0.0),
        alpha=node.opacity,
        shadow=shadow_of(node),
    )


def _is_plain(canvas: Canvas, node: Node) -> bool:
    """Whether the file shows what the page shows: no filter, mask or cut by round or other edges."""
    if any(node.css(name) not in {"none", ""} for name in ("filter", "mask-image", "clip-path")):
        return False
    owners = [owner for owner in node.ancestors() if owner.css("filter") not in {"none", ""}]
    return not owners and all(
        is_inside(node.rect, clip.rect) and not any(clip.radii) for clip in clips_of(node, canvas.root)
    )


def content_box(node: Node) -> Rect:
    """Return the box without borders and padding."""
    top, right, bottom, left = (
        node.px(f"border-{side}-width") + node.px(f"padding-{side}") for side in ("top", "right", "bottom", "left")
    )
    rect = node.rect
    return Rect(rect.x + left, rect.y + top, max(1.0, rect.width - left - right), max(1.0, rect.height - top - bottom))


def fitted(
    fit: str, position: str, box: Rect, size: tuple[float, float]
) -> tuple[Rect, tuple[float, float, float, float]] | None:
    """Where an image is shown in its box, and the part cut off each side, for an object-fit or background-size."""
    wide, high = size
    if wide <= 0 or high <= 0 or box.width <= 0 or box.height <= 0:
        return None
    scales = (box.width / wide, box.height / high)
    if fit in {"fill", ""}:
        return box, (0.0, 0.0, 0.0, 0.0)
    scale = {"cover": max(scales), "contain": min(scales), "scale-down": min(1.0, *scales), "none": 1.0}.get(fit)
    if scale is None:
        return None
    shown = (wide * scale, high * scale)
    tokens = [*position.split(), "50%"][:2]
    left = _offset(tokens[0], box.width - shown[0])
    top = _offset(tokens[1], box.height - shown[1])
    whole = Rect(box.x + left, box.y + top, *shown)
    seen = whole.meet(box)
    if seen is None:
        return None
    crop = (
        (seen.x - whole.x) / whole.width,
        (seen.y - whole.y) / whole.height,
        (whole.right - seen.right) / whole.width,
        (whole.bottom - seen.bottom) / whole.height,
    )
    return seen, crop


def _offset(token: str, room: float) -> float:
    value = css.number(token, 50.0)
    return value / 100 * room if token.endswith("%") else value


def background(canvas: Canvas, node: Node) -> Picture | None:
    """Return a background that is one image, shown once, as the file itself."""
    found = layers(node.css("background-image"))
    address = re.match(r"""^url\(["']?(.*?)["']?\)$""", found[0], re.DOTALL) if len(found) == 1 else None
    if address is None or not _is_plain(canvas, node) or node.css("background-clip") == "text":
        return None
    content = content_of(canvas, address.group(1).replace('\\"', '"'))
    known = size_of(content) if content else None
    size = node.css("background-size")
    if content is None or known is None or size not in {"cover", "contain", "100% 100%", "auto"}:
        return None
    if size in {"contain", "auto"} and node.css("background-repeat") != "no-repeat":
        return None
    fit = {"100% 100%": "fill", "auto": "none"}.get(size, size)
    position = f"{node.css('background-position-x')} {node.css('background-position-y')}"
    placed = fitted(fit, position, node.rect, (known[0] * node.zoom, known[1] * node.zoom))
    if placed is None:
        return None
    radii = radii_of(node) if size in {"cover", "100% 100%"} else (0.0, 0.0, 0.0, 0.0)
    return Picture(
        box=node.box(placed[0]),
        data=content.data,
        mime=known[2],
        crop=placed[1],
        radii=radii,
        alpha=node.opacity,
        alt=node.attributes.get("aria-label", "")[:500],
        name="background",
    )


def emoji(canvas: Canvas, group: Group) -> Picture | None:
    """Text of emoji only is an icon: a picture, because programs draw emoji differently or not at all."""
    words = "".join(piece.text for piece in group.pieces).strip()
    if not words or len(words) > _MOST_EMOJI or group.bullet is not None or not all(_is_emoji(c) for c in words):
        return None
    fonts = fonts_of(canvas.raw, group.pieces[0].node, words)
    if not any("Emoji" in font.family for font in fonts):
        return None
    area = around(piece.rect for piece in group.pieces)
    owner = group.pieces[0].node
    if area.width < 1:
        return None
    area = painted_area(owner, area)
    reach = owner.px("font-size") * 0.2
    grown = Rect(area.x - reach, area.y - reach, area.width + 2 * reach, area.height + 2 * reach)
    found = canvas.picture(owner, grown, kind="glyphs", scale=_SHARP)
    return replace(found, alt=words, name="emoji") if found else None


def _is_emoji(character: str) -> bool:
    return character in " \u200d\ufe0f\u20e3" or kind(character) == "symbol" or 0x1F1E6 <= ord(character) <= 0x1F1FF
