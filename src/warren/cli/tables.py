"""Rows for people as a table, for programs as JSON."""

from __future__ import annotations

import dataclasses
import json
import sys
from datetime import datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence


def wants_json(asked: bool) -> bool:
    """Whether to print JSON: when asked to, and when nobody is looking."""
    return asked or not sys.stdout.isatty()


def as_plain(value: Any) -> dict[str, Any]:
    """Make JSON of a dataclass; times are written as the API writes them, and bytes left out: their text is there."""
    return {name: _plain(each) for name, each in dataclasses.asdict(value).items() if not isinstance(each, bytes)}


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return value.isoformat() if isinstance(value, datetime) else value


def print_json(value: Any) -> None:
    """Print one JSON document."""
    print(json.dumps(value, ensure_ascii=False, indent=2))


def print_table(title: str | None, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print rows under headings, as wide as the terminal allows. Cells are plain text, never markup."""
    from rich.console import Console

    Console().print(build_table(title, columns, rows))


def build_table(title: str | None, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> Any:
    """Build what rich draws."""
    from rich.table import Table
    from rich.text import Text

    table = Table(
        title=title, title_justify="left", box=None, pad_edge=False, header_style="bold", show_header=any(columns)
    )
    for number, column in enumerate(columns):
        # What somebody may want to copy, an id or a name, stays in one piece.
        table.add_column(column, overflow="fold", no_wrap=number == 0)
    for row in rows:
        table.add_row(*(Text.from_ansi(cell) if "\x1b" in cell else Text(cell) for cell in row))
    return table
