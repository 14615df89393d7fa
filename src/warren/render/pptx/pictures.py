"""Pictures: one part for the same bytes, cut and rounded as on the page, drawings kept as SVG beside them."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

from PIL import Image

from warren.render.pptx.fill import effects
from warren.render.pptx.geometry import frame, rounded
from warren.render.pptx.svg import safe_svg
from warren.render.pptx.xml import clamped, element

if TYPE_CHECKING:
    from warren.render.pptx.page import Page
    from warren.render.scene.scene import Picture

_SVG_PICTURE = "{96DAC541-7B7A-43D3-8B79-37D633B846F1}"
_KEPT = {"PNG", "JPEG", "GIF"}
_MOST_PIXELS = 64_000_000
_OPAQUE = 0.995


def picture(value: Picture, page: Page) -> Any:
    """`p:pic`."""
    locks = element("a:picLocks", {"noChangeAspect": 1})
    return element(
        "p:pic",
        None,
        element(
            "p:nvPicPr",
            None,
            page.properties(value.name, "Picture", alt=value.alt, link=value.link),
            element("p:cNvPicPr", None, locks),
            element("p:nvPr"),
        ),
        element(
            "p:blipFill", None, _blip(value, page), _crop(value.crop), element("a:stretch", None, element("a:fillRect"))
        ),
        element(
            "p:spPr",
            None,
            frame(value.box, page.scale),
            rounded(value.box, value.radii, page.scale),
            effects(value.shadow, page.scale),
        ),
    )


def _blip(value: Picture, page: Page) -> Any:
    relation = page.image(readable(value.data))
    alpha = clamped(value.alpha, 0, 1)
    faded = element("a:alphaModFix", {"amt": round(alpha * 100_000)}) if alpha < _OPAQUE else None
    extension = None
    if value.svg and (drawing := safe_svg(value.svg)):
        kept = element("asvg:svgBlip", {"r:embed": page.svg(drawing)})
        extension = element("a:extLst", None, element("a:ext", {"uri": _SVG_PICTURE}, kept))
    return element("a:blip", {"r:embed": relation}, faded, extension)


def _crop(crop: tuple[float, float, float, float]) -> Any:
    left, top, right, bottom = (clamped(side, 0, 0.999) for side in crop)
    if max(left, top, right, bottom) <= 0 or left + right >= 1 or top + bottom >= 1:
        return None
    sides = {"l": left, "t": top, "r": right, "b": bottom}
    return element("a:srcRect", {key: round(part * 100_000) for key, part in sides.items() if part > 0})


def readable(data: bytes) -> bytes:
    """Return `data` as a kind of picture that every PowerPoint shows; WebP and the like become PNG."""
    with Image.open(io.BytesIO(data)) as image:
        if image.format in _KEPT:
            return data
        if image.width * image.height > _MOST_PIXELS:
            raise ValueError(f"A picture of {image.width} x {image.height} pixels is too large to convert.")
        target = io.BytesIO()
        image.convert("RGBA").save(target, "PNG")
    return target.getvalue()
