"""Which elements are formulas, how much room they take in a line of text, and what they were written as."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from warren.render.scene.raw import RawSlide
    from warren.render.scene.snapshot import Node, Rect

_HIDDEN = {"katex-mathml", "mjx-assistive-mml"}
"""What only screen readers are meant to find: the same formula once more."""
_LONGEST = 2000
_DEEPEST = 3


def is_formula(node: Node) -> bool:
    """Whether a library (KaTeX, MathJax) or the browser itself (MathML) has set this element as a formula."""
    if node.name in {"math", "mjx-container"}:
        return True
    return "katex" in node.attributes.get("class", "").split()


def is_hidden(node: Node) -> bool:
    """Whether it repeats the formula for screen readers."""
    return node.name in _HIDDEN or not _HIDDEN.isdisjoint(node.attributes.get("class", "").split())


def formulas_of(nodes: list[Node]) -> tuple[list[Node], set[int]]:
    """Return the outermost formulas of a slide, whose nodes are in tree order, and the ids of all that is in them."""
    roots: list[Node] = []
    inside: set[int] = set()
    for node in nodes:
        if id(node.parent) in inside:
            inside.add(id(node))
        elif node.text is None and is_formula(node):
            roots.append(node)
            inside.add(id(node))
    return roots, inside


def room_of(root: Node) -> list[Rect]:
    """Return where a formula is, once for each part that the browser may put on another line."""
    parts = _bases(root, _DEEPEST) or [root]
    rows: list[Rect] = []
    for part in parts:
        rect = part.rect
        if rows and rows[-1].y < rect.bottom and rect.y < rows[-1].bottom and rect.x >= rows[-1].x:
            rows[-1] = rows[-1].union(rect)
        else:
            rows.append(rect)
    return [row for row in rows if row.width > 0]


def _bases(node: Node, depth: int) -> list[Node]:
    found: list[Node] = []
    for child in node.children if depth else []:
        is_base = "base" in child.attributes.get("class", "").split()
        found += [child] if is_base else _bases(child, depth - 1)
    return found


def source_of(raw: RawSlide, root: Node, painted: str) -> str:
    """Return the source of the formula: its TeX, else the words of its MathML, else the painted text."""
    said = root.attributes.get("data-latex") or raw.page.hidden_text(root.backend, "annotation")
    words = said or raw.page.hidden_text(root.backend, "math") or root.attributes.get("aria-label", "")
    return " ".join((words or painted).split())[:_LONGEST]
