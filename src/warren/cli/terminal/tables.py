"""Rows for people as a table, for programs as JSON."""

from __future__ import annotations

import json
import os
import re
import sys
from datetime import datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence


_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")
"""What a terminal obeys, or reads backwards; all but tabs and ends of lines."""
_COLOURED = re.compile(r"\x1b\[3[1-3]m[a-z, ]+\x1b\[0m")
"""The one way in which cells of ours have a colour."""
_BOLD = "\x1b[1m{}\x1b[0m"
_COLOUR = re.compile(r"\x1b\[[0-9]+m")


def as_plain(value: Any) -> dict[str, Any]:
    """Make JSON of a dataclass; times are written as the API writes them, and bytes left out: their text is there."""
    import dataclasses

    return {name: _plain(each) for name, each in dataclasses.asdict(value).items() if not isinstance(each, bytes)}


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return value.isoformat() if isinstance(value, datetime) else value


def harmless(text: str) -> str:
    """Write what a terminal would obey so that it is only seen: names and labels are chosen by anybody."""
    return _CONTROLS.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def print_json(value: Any) -> None:
    """Print one JSON document."""
    print(render_json(value, indent=2))


def print_either(as_json: bool, value: Any, sentence: str) -> None:
    """Print JSON for programs, or else a sentence for people."""
    if as_json:
        print_json(value)
    else:
        print(sentence)


def render_json(value: Any, indent: int | None = None) -> str:
    """Write JSON of which a terminal obeys nothing."""
    text = json.dumps(value, ensure_ascii=False, indent=indent)
    return _CONTROLS.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def print_table(title: str | None, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print rows under headings, a line each. Cells are folded to the width of a terminal, never in a pipe."""
    width = _terminal_width()
    lines = _align(columns, rows, is_coloured=width is not None)
    if width is None or all(len(_COLOUR.sub("", line)) <= width for line in lines):
        print("\n".join([*([title] if title else []), *lines]))
        return
    from rich.console import Console

    Console().print(build_table(title, columns, rows))


def _terminal_width() -> int | None:
    try:
        return os.get_terminal_size(sys.stdout.fileno()).columns if sys.stdout.isatty() else None
    except OSError:
        return None


def _align(columns: Sequence[str], rows: Sequence[Sequence[str]], *, is_coloured: bool) -> list[str]:
    """Align the cells with spaces: no box, nothing folded or cut."""
    heading = [list(columns)] if any(columns) else []
    cells = heading + [[_bare(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = []
    for number, row in enumerate(cells):
        given = rows[number - len(heading)] if number >= len(heading) else None
        padded = []
        for position, (cell, width) in enumerate(zip(row, widths, strict=True)):
            text = cell
            if is_coloured:
                text = _BOLD.format(cell) if given is None else _coloured(given[position])
            padded.append(text + " " * (width - len(cell)))
        lines.append("  ".join(padded).rstrip())
    return lines


def _coloured(cell: str) -> str:
    return cell if _COLOURED.fullmatch(cell) else _bare(cell)


def _bare(cell: str) -> str:
    text = cell[len("\x1b[32m") : -len("\x1b[0m")] if _COLOURED.fullmatch(cell) else harmless(cell)
    return text.replace("\n", " ")


def build_table(title: str | None, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> Any:
    """Build what rich draws. Cells are plain text, never markup."""
    from rich.table import Table
    from rich.text import Text

    table = Table(
        title=title, title_justify="left", box=None, pad_edge=False, header_style="bold", show_header=any(columns)
    )
    for number, column in enumerate(columns):
        # The first column is an id or a name, to be copied: it stays in one piece.
        table.add_column(column, overflow="fold", no_wrap=number == 0)
    for row in rows:
        table.add_row(*(Text.from_ansi(cell) if _COLOURED.fullmatch(cell) else Text(harmless(cell)) for cell in row))
    return table
