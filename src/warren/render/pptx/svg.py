"""SVG drawings from pages, without scripts and external references that would act when the deck is opened."""

from __future__ import annotations

import re

from lxml import etree

_LARGEST = 4_000_000
_SVG = "http://www.w3.org/2000/svg"
_ACTING = {"script", "foreignObject", "iframe", "object", "embed", "handler", "set", "animate", "animateTransform"}
_INSIDE = re.compile(r"\s*(#|data:image/(png|jpeg|gif|webp);)", re.IGNORECASE)
_REACHING = re.compile(
    r"""url\((?!\s*['"]?(?:#|data:image/(?:png|jpeg|gif|webp);))|@import|expression\(|image-set\(|src\(""",
    re.IGNORECASE,
)
_ESCAPE = re.compile(r"\\(?:([0-9a-fA-F]{1,6})\s?|(.?))", re.DOTALL)


def safe_svg(drawing: bytes) -> bytes | None:
    """`drawing` with only its own shapes, or None if it is not one."""
    if len(drawing) > _LARGEST:
        return None
    # SAFE BECAUSE: no entities, no DTD and no network, so that a hostile drawing can neither grow nor read.
    parser = etree.XMLParser(resolve_entities=False, no_network=True, load_dtd=False, huge_tree=False, remove_pis=True)
    try:
        root = etree.fromstring(drawing, parser)
    except etree.XMLSyntaxError:
        return None
    if etree.QName(root).localname != "svg" or root.getroottree().docinfo.internalDTD is not None:
        return None
    for node in list(root.iter()):
        if not isinstance(node.tag, str) or _is_foreign(node) or etree.QName(node).localname in _ACTING:
            _remove(node)
        else:
            _disarm(node)
    return bytes(etree.tostring(root, xml_declaration=True, encoding="UTF-8"))


def _is_foreign(node: etree._Element) -> bool:
    """Whether the element is of another namespace, such as HTML, whose elements load external content in other ways."""
    return etree.QName(node).namespace not in {None, _SVG}


def _remove(node: etree._Element) -> None:
    parent = node.getparent()
    if parent is not None:
        parent.remove(node)


def _disarm(node: etree._Element) -> None:
    for key in list(node.attrib):
        local, value = etree.QName(key).localname, node.attrib[key]
        is_link = local in {"href", "src"} and not _INSIDE.match(value)
        if is_link or local == "base" or local.lower().startswith("on") or _reaches(value):
            del node.attrib[key]
    if etree.QName(node).localname == "style" and node.text and _reaches(node.text):
        node.text = ""


def _reaches(style: str) -> bool:
    """Whether a style loads external content, also in CSS escapes."""
    return bool(_REACHING.search(_ESCAPE.sub(lambda found: _letter(found[1]) if found[1] else found[2], style)))


def _letter(code: str) -> str:
    return chr(min(int(code, 16), 0x10FFFF))
