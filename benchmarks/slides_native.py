"""What of a PPTX file is native: its visible words, shapes, tables and links, slide by slide."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pptx import Presentation

if TYPE_CHECKING:
    from pathlib import Path

_A = "{http://schemas.openxmlformats.org/drawingml/2006/main}"
_P = "{http://schemas.openxmlformats.org/presentationml/2006/main}"
_FILLS = ("solidFill", "gradFill", "pattFill", "blipFill")
_GROUP = 6
_PX = 1920


def native(deck: Path) -> list[dict[str, Any]]:
    """Return what each slide has; invisible text does not count."""
    presentation = Presentation(str(deck))
    size = presentation.slide_width, presentation.slide_height
    return [_slide(slide, *size) for slide in presentation.slides]


def _slide(slide: Any, wide: int, high: int) -> dict[str, Any]:
    found: dict[str, Any] = {"words": [], "texts": 0, "tables": 0, "links": 0, "shapes": []}
    for shape in _all(slide.shapes):
        _count(shape, found, wide, high)
    return {**found, "text": " ".join(found["words"])}


def _all(shapes: Any) -> list[Any]:
    return [each for shape in shapes for each in (_all(shape.shapes) if shape.shape_type == _GROUP else [shape])]


def _count(shape: Any, found: dict[str, Any], wide: int, high: int) -> None:
    factor = _PX / wide
    place = (shape.left, shape.top, shape.width, shape.height)
    is_placed = None not in place
    is_here = not is_placed or (
        place[0] < wide and place[1] < high and place[0] + place[2] > 0 and place[1] + place[3] > 0
    )
    if is_placed and _is_painted(shape.element):
        found["shapes"].append([side * factor for side in place])
    if getattr(shape, "has_table", False) and shape.has_table:
        found["tables"] += 1
        found["shapes"] += _cells(shape, factor)
    words = [run for run in shape.element.iter(f"{_A}r", f"{_A}fld") if _is_seen(run)]
    found["links"] += sum(run.find(f"{_A}rPr/{_A}hlinkClick") is not None for run in words)
    if is_here and words:
        found["words"] += [run.findtext(f"{_A}t") for run in words]
        found["texts"] += 1


def _is_painted(element: Any) -> bool:
    properties = element.find(f"{_P}spPr")
    if not element.tag.endswith("}sp") or properties is None:
        return False
    line = properties.find(f"{_A}ln")
    is_styled = element.find(f"{_P}style/{_A}fillRef") is not None and properties.find(f"{_A}noFill") is None
    is_lined = line is not None and len(line) > 0 and line.find(f"{_A}noFill") is None
    return is_styled or is_lined or any(properties.find(f"{_A}{kind}") is not None for kind in _FILLS)


def _cells(shape: Any, factor: float) -> list[list[float]]:
    made, top = [], shape.top
    for row in shape.table.rows:
        left = shape.left
        for column in shape.table.columns:
            made.append([left * factor, top * factor, column.width * factor, row.height * factor])
            left += column.width
        top += row.height
    return made


def _is_seen(run: Any) -> bool:
    if not (run.findtext(f"{_A}t") or "").strip():
        return False
    style = run.find(f"{_A}rPr")
    if style is None:
        return True
    alpha = style.find(f"{_A}solidFill/*/{_A}alpha")
    is_clear = alpha is not None and int(alpha.get("val")) < 2_000
    is_hollow = style.find(f"{_A}noFill") is not None and style.find(f"{_A}ln") is None
    return not is_clear and not is_hollow and int(style.get("sz", 1_800)) >= 200
