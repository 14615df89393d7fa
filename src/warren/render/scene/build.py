"""From a captured slide to the scene: everything that is painted, from the back to the front."""

from __future__ import annotations

from typing import TYPE_CHECKING

from warren.render.scene import css
from warren.render.scene.backdrop import backdrop, flatten_text
from warren.render.scene.blocks import Group, groups_of, merged, stood_up
from warren.render.scene.charts import chart
from warren.render.scene.clip import clips_of
from warren.render.scene.drawings import drawing_texts
from warren.render.scene.formula import formulas_of
from warren.render.scene.formula_build import formula
from warren.render.scene.icons import take_icons
from warren.render.scene.paint import Canvas, Request, box_shapes, needs_picture, paint
from warren.render.scene.pictures import REPLACED, background, emoji, picture
from warren.render.scene.scene import Item, Slide, TextBox
from warren.render.scene.snapshot import Node, Rect
from warren.render.scene.tables import Grid, grid_of, table_of
from warren.render.scene.text import boxes_of, words_of

if TYPE_CHECKING:
    from warren.render.scene.raw import RawSlide

_TITLES = ("h1", "h2")
_LONGEST_TITLE = 300
# After all that the same element paints.
_TABLE, _TEXT = 1000, 1001

Placed = tuple[tuple[int, int, int], Item, int]
"""Place in the order of painting, the item, and its see-through group."""


def build_slide(raw: RawSlide, *, notes: str = "") -> Slide:
    """Return the scene of one slide. Raises SnapshotError, and what else a hostile page can make go wrong."""
    root, nodes = raw.tree()
    canvas = Canvas(raw, root)
    behind = backdrop(canvas)
    formulas, inside = formulas_of(nodes)
    nodes = [node for node in nodes if id(node) not in inside]
    placed = [*_paint_all(canvas, nodes), *_write_all(canvas, root, nodes), *_formulas(canvas, formulas)]
    placed.sort(key=lambda one: one[0])
    found = [*((item, -1) for item in behind.items), *((item, group) for _, item, group in placed)]
    items = flatten_text(found, behind, root)
    title = next((words_of(item.paragraphs) for item in items if isinstance(item, TextBox) and item.is_title), "")
    return Slide(
        width=root.bounds.width,
        height=root.bounds.height,
        items=tuple(items),
        background=behind.fill,
        background_picture=behind.picture,
        title=title[:_LONGEST_TITLE],
        notes=notes,
    )


def wanted(raw: RawSlide) -> tuple[list[Request], set[str]]:
    """Return the captures that a slide still needs: pictures of paint, and the addresses of images."""
    root, nodes = raw.tree()
    canvas = Canvas(raw, root)
    backdrop(canvas)
    formulas, inside = formulas_of(nodes)
    _formulas(canvas, formulas)
    _paint_all(canvas, [node for node in nodes if id(node) not in inside])
    groups = merged(groups_of(root))
    take_icons(canvas, groups)
    for group in groups:
        emoji(canvas, group)
    return list(canvas.requests.values()), canvas.images


def _grids(canvas: Canvas, nodes: list[Node]) -> list[Grid]:
    found: list[Grid] = []
    for node in nodes:
        if node.css("display") in {"table", "inline-table"} and node.text is None and node.is_visible:
            grid = grid_of(node, canvas.root.bounds.height)
            if grid is not None:
                found.append(grid)
    return found


def _paint_all(canvas: Canvas, nodes: list[Node]) -> list[Placed]:
    found: list[Placed] = []
    tabled: set[int] = set()
    for grid in _grids(canvas, nodes):
        tabled |= grid.nodes | {id(cell) for cell in grid.cells}
    inside: set[int] = set()
    for node in nodes:
        if id(node.parent) in inside:
            inside.add(id(node))
            continue
        if node is canvas.root or node.text is not None or not node.is_visible or id(node) in tabled:
            continue
        # A chart library's container: what it has drawn in it is the chart.
        known = chart(canvas.raw, node, b"") if node.name not in REPLACED else None
        if known is not None:
            inside.add(id(node))
            found.append(((node.paint, node.order, _TABLE), known, _group(node)))
            continue
        if node.is_svg and (node.parent is None or node.parent.is_svg):
            continue
        items: list[Item] = []
        image = None if node.is_inline or node.is_anonymous else background(canvas, node)
        if image is not None:
            items += [*box_shapes(canvas, node, node.rect), image]
        elif node.name != "svg" or not needs_picture(node):
            items += paint(canvas, node)
        if node.name in REPLACED:
            items += _replaced(canvas, node)
        found += [((node.paint, node.order, at), item, _group(node)) for at, item in enumerate(items)]
    return found


def _replaced(canvas: Canvas, node: Node) -> list[Item]:
    if node.name in {"input", "select"} and node.attributes.get("type", "text") not in {"checkbox", "radio", "range"}:
        return []
    pictures = picture(canvas, node)
    known = chart(canvas.raw, node, pictures[0].data if pictures else b"")
    return [known] if known is not None else list(pictures)


def _write_all(canvas: Canvas, root: Node, nodes: list[Node]) -> list[Placed]:
    everything = merged(groups_of(root))
    found: list[Placed] = []
    for piece, icon in take_icons(canvas, everything):
        found.append(((piece.node.paint, piece.node.order, _TEXT), icon, _group(piece.node)))
    everything = [group for group in everything if group.has_text]
    used: set[int] = set()
    for grid in _grids(canvas, nodes):
        # WHY all of it: a table whose box cuts it off is still one table; it loses no rows that are on the slide.
        made, taken, under = table_of(canvas.raw, grid, _in_cells(everything, grid))
        used |= taken
        place = (grid.table.paint, grid.table.order, _TABLE)
        painted: list[Item] = [*under, made]
        found += [(place, item, _group(grid.table)) for item in painted]
    groups = [group for group in everything if id(group) not in used and _is_seen(group, root)]
    title = _title(groups)
    for group in groups:
        stood_up(group)
        mark = emoji(canvas, group)
        boxes: list[Item] = [mark] if mark is not None else list(boxes_of(canvas.raw, group, is_title=group is title))
        order = (*group.order, _TEXT)
        found += [(order, box, _group(group.pieces[0].node)) for box in boxes]
    found += [((*order, _TEXT), box, -1) for order, box in drawing_texts(canvas.raw, nodes)]
    return found


def _formulas(canvas: Canvas, roots: list[Node]) -> list[Placed]:
    found: list[Placed] = []
    for root in roots:
        made = formula(canvas, root)
        if made is not None:
            found.append(((root.paint, root.order, _TEXT), made, _group(root)))
    return found


def _group(node: Node) -> int:
    """Return the number of the outermost element that lets the slide shine through with all that is in it, or -1."""
    found = -1
    for owner in [node, *node.ancestors()]:
        if 0 < css.number(owner.css("opacity"), 1.0) < 1:
            found = owner.order
    return found


def _in_cells(groups: list[Group], grid: Grid) -> dict[int, list[Group]]:
    cells = {id(cell) for cell in grid.cells}
    found: dict[int, list[Group]] = {}
    for group in groups:
        for owner in [group.block, *group.block.ancestors()]:
            if id(owner) in cells:
                found.setdefault(id(owner), []).append(group)
                break
    return found


def _title(groups: list[Group]) -> Group | None:
    for name in _TITLES:
        for group in groups:
            if any(owner.name == name for owner in [group.block, *group.block.ancestors()]) and not group.turn:
                return group
    return None


def _is_seen(group: Group, root: Node) -> bool:
    """Whether any of the text is on the slide and not cut off; what can be scrolled to counts as seen."""
    slide = Rect(0.0, 0.0, root.bounds.width, root.bounds.height)
    group.pieces = [piece for piece in group.pieces if piece.is_break or _is_piece_seen(piece.node, piece.rect, root)]
    if not group.has_text:
        return False
    first = next(piece for piece in group.pieces if piece.text.strip())
    box = first.node.box(first.rect)
    return group.turn != 0 or Rect(box.x, box.y, box.width, box.height).meet(slide) is not None


def _is_piece_seen(node: Node, rect: Rect, root: Node) -> bool:
    for clip in clips_of(node, root, is_text=True):
        cut = rect.meet(clip.rect)
        if cut is None or cut.width * cut.height < 0.1 * rect.width * rect.height:
            return clip.scrolls
    return True
