"""A check of slides against ECMA-376: which children an element may have, in which order, and what numbers may be."""

from __future__ import annotations

import io
import zipfile
from collections import Counter
from typing import Any

from lxml import etree

_SPACES = {
    "http://schemas.openxmlformats.org/drawingml/2006/main": "a",
    "http://schemas.openxmlformats.org/presentationml/2006/main": "p",
    "http://schemas.openxmlformats.org/officeDocument/2006/relationships": "r",
    "http://schemas.openxmlformats.org/drawingml/2006/chart": "c",
    "http://schemas.microsoft.com/office/drawing/2016/SVG/main": "asvg",
    "http://schemas.microsoft.com/office/drawing/2018/hyperlinkcolor": "ahyp",
}
_FILLS = "noFill solidFill gradFill blipFill pattFill grpFill"
_STYLE = (
    f"ln {_FILLS} effectLst effectDag highlight uLnTx uLn uFillTx uFill latin ea cs sym"
    " hlinkClick hlinkMouseOver rtl extLst"
)
_LINE = f"{_FILLS} prstDash custDash round bevel miter headEnd tailEnd extLst"
_PATH = ("moveTo", "lnTo", "cubicBezTo", "arcTo", "quadBezTo", "close")
_ORDER = {
    "p:sld": "p:cSld p:clrMapOvr p:transition p:timing p:extLst",
    "p:clrMapOvr": "masterClrMapping overrideClrMapping",
    "p:cSld": "p:bg p:spTree p:custDataLst p:controls p:extLst",
    "p:bg": "p:bgPr p:bgRef",
    "p:bgPr": f"{_FILLS} effectLst effectDag extLst",
    "p:nvGrpSpPr": "p:cNvPr p:cNvGrpSpPr p:nvPr",
    "p:grpSpPr": "xfrm",
    "p:sp": "p:nvSpPr p:spPr p:style p:txBody p:extLst",
    "p:nvSpPr": "p:cNvPr p:cNvSpPr p:nvPr",
    "p:nvCxnSpPr": "p:cNvPr p:cNvCxnSpPr p:nvPr",
    "p:nvPicPr": "p:cNvPr p:cNvPicPr p:nvPr",
    "p:nvGraphicFramePr": "p:cNvPr p:cNvGraphicFramePr p:nvPr",
    "p:cNvPr": "hlinkClick hlinkHover extLst",
    "p:cNvPicPr": "picLocks extLst",
    "p:cNvGraphicFramePr": "graphicFrameLocks extLst",
    "p:nvPr": "p:ph",
    "p:cxnSp": "p:nvCxnSpPr p:spPr p:style p:extLst",
    "p:pic": "p:nvPicPr p:blipFill p:spPr p:style p:extLst",
    "p:graphicFrame": "p:nvGraphicFramePr p:xfrm graphic p:extLst",
    "p:xfrm": "off ext",
    "p:spPr": f"xfrm custGeom prstGeom {_FILLS} ln effectLst effectDag scene3d sp3d extLst",
    "p:txBody": "bodyPr lstStyle p",
    "p:blipFill": "blip srcRect tile stretch",
    "blipFill": "blip srcRect tile stretch",
    "blip": "alphaModFix extLst",
    "stretch": "fillRect",
    "xfrm": "off ext chOff chExt",
    "prstGeom": "avLst",
    "avLst": "gd",
    "custGeom": "avLst gdLst ahLst cxnLst rect pathLst",
    "pathLst": "path",
    "moveTo": "pt",
    "lnTo": "pt",
    "cubicBezTo": "pt",
    "solidFill": "srgbClr",
    "srgbClr": "alpha",
    "gradFill": "gsLst lin path tileRect",
    "gsLst": "gs",
    "gs": "srgbClr",
    "effectLst": "blur fillOverlay glow innerShdw outerShdw prstShdw reflection softEdge",
    "innerShdw": "srgbClr",
    "outerShdw": "srgbClr",
    "ln": _LINE,
    "lnL": _LINE,
    "lnR": _LINE,
    "lnT": _LINE,
    "lnB": _LINE,
    "bodyPr": "prstTxWarp noAutofit normAutofit spAutoFit scene3d sp3d flatTx extLst",
    "pPr": "lnSpc spcBef spcAft buClrTx buClr buSzTx buSzPct buSzPts buFontTx buFont buNone buAutoNum buChar buBlip"
    " tabLst defRPr extLst",
    "lnSpc": "spcPct spcPts",
    "spcBef": "spcPct spcPts",
    "spcAft": "spcPct spcPts",
    "buClr": "srgbClr",
    "r": "rPr t",
    "br": "rPr",
    "rPr": _STYLE,
    "endParaRPr": _STYLE,
    "highlight": "srgbClr",
    "hlinkClick": "snd extLst",
    "extLst": "ext",
    "ext": "asvg:svgBlip ahyp:hlinkClr",
    "graphic": "graphicData",
    "graphicData": "tbl c:chart",
    "tbl": "tblPr tblGrid tr",
    "tblGrid": "gridCol",
    "tr": "tc extLst",
    "tc": "txBody tcPr extLst",
    "txBody": "bodyPr lstStyle p",
    "tcPr": f"lnL lnR lnT lnB lnTlToBr lnBlToTr cell3D {_FILLS} headers extLst",
}
_NUMBERS = {"cx", "cy", "w", "h", "sz", "marL", "marR", "marT", "marB", "blurRad", "dist"}


def name(element: Any) -> str:
    """`p:sp`; names of DrawingML have no prefix."""
    full = etree.QName(element)
    prefix = _SPACES[full.namespace or ""]
    return full.localname if prefix == "a" else f"{prefix}:{full.localname}"


def faults(pptx: bytes) -> list[str]:
    """What PowerPoint would call damage on the slides of a file."""
    found: list[str] = []
    with zipfile.ZipFile(io.BytesIO(pptx)) as archive:
        names = archive.namelist()
        found += [f"{each} is there twice" for each, count in Counter(names).items() if count > 1]
        for each in names:
            if each.startswith("ppt/slides/slide"):
                tree = etree.fromstring(archive.read(each))
                found += [f"{each}: {fault}" for fault in [*_structure(tree), *_identity(tree)]]
    return found


def _structure(tree: Any) -> list[str]:
    found = []
    for element in tree.iter():
        tag, children = name(element), [name(child) for child in element]
        if tag == "path":
            if children and children[0] not in {"moveTo", "fillToRect"}:
                found.append("a path does not start with moveTo")
            found += [f"path has {child}" for child in children if child not in {*_PATH, "fillToRect"}]
        elif tag in {"p:spTree", "p:grpSp"}:
            if children[:2] != ["p:nvGrpSpPr", "p:grpSpPr"]:
                found.append(f"{tag} lacks its properties")
        elif tag == "p":
            found += _paragraph(children)
        elif children:
            found += _ordered(tag, children)
        found += _numbers(tag, element)
    return found


def _paragraph(children: list[str]) -> list[str]:
    allowed = {"pPr": 0, "r": 1, "br": 1, "fld": 1, "endParaRPr": 2}
    places = [allowed.get(child, -1) for child in children]
    return [] if -1 not in places and places == sorted(places) and children.count("pPr") <= 1 else [f"p has {children}"]


def _ordered(tag: str, children: list[str]) -> list[str]:
    if tag not in _ORDER:
        return [f"{tag} is not in the table"]
    order = _ORDER[tag].split()
    if strange := [child for child in children if child not in order]:
        return [f"{tag} must not have {strange}"]
    places = [order.index(child) for child in children]
    return [] if places == sorted(places) else [f"{tag} has {children} in the wrong order"]


def _numbers(tag: str, element: Any) -> list[str]:
    return [
        f"{tag}/@{key} is {value}"
        for key, value in element.attrib.items()
        if key in _NUMBERS and not (value.isdigit() and int(value) < 2**31)
    ]


def _identity(tree: Any) -> list[str]:
    numbers = Counter(each.get("id") for each in tree.iter() if name(each) == "p:cNvPr")
    return [f"number {each} is taken twice" for each, count in numbers.items() if count > 1]
