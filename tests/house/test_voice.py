"""The voice of documents, docstrings, comments and log events, as far as a machine can hear it."""

from __future__ import annotations

import ast
import re
from collections import Counter

import pytest

from house.repository import files, read

COLUMNS = 100
WORDS = re.compile(
    r"\b(whoever|whom|nobody|somebody|the\s+way\s+out|comes\s+to\s+be|that\s+is\s+none)\b", re.IGNORECASE
)
GENERATED = {f"docs/reference/{name}.md" for name in ("cli", "mcp", "sdk", "settings")}
PAGES = [
    name for name in files(suffix=".md") if name not in GENERATED and (name.startswith("docs/") or "/" not in name)
]
ALLOWED = {"engines": 1}
"""How often each package still uses one of the words: these numbers only shrink."""

EVENT = re.compile(r"[a-z_]+\.[a-z_]+")
PAST = re.compile(r"(\w+ed|\w+_(unread|unreadable)|lost|swept|stopping|incomplete|cut_off)")
LOGGED = {"debug", "info", "warning", "error", "exception", "critical"}


def prose(text: str) -> list[str]:
    """Return the lines of a page without code blocks and tables, which are as wide as their content."""
    without_code = re.sub(r"^ *```.*?^ *```", "", text, flags=re.MULTILINE | re.DOTALL)
    return [line for line in without_code.splitlines() if not line.lstrip().startswith("|")]


@pytest.mark.parametrize("page", PAGES)
def test_a_page_is_at_most_100_columns_wide(page: str) -> None:
    wide = [line for line in prose(read(page)) if len(line) > COLUMNS and " " in line.strip("-* ")]

    assert wide == []


@pytest.mark.parametrize("page", PAGES)
def test_a_page_uses_plain_words(page: str) -> None:
    assert WORDS.findall(read(page)) == []


def test_the_code_uses_plain_words() -> None:
    used: Counter[str] = Counter()
    for name in files(under="src/warren/", suffix=".py"):
        used[name.split("/")[2]] += len(WORDS.findall(read(name)))

    assert {room: count for room, count in used.items() if count > ALLOWED.get(room, 0)} == {}


def events(source: str) -> set[str]:
    """Return the names of events that a module logs."""
    return {
        node.args[0].value
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in LOGGED
        and node.args
        and isinstance(node.args[0], ast.Constant)
        and isinstance(node.args[0].value, str)
        and EVENT.fullmatch(node.args[0].value)
    }


def test_log_events_are_a_noun_and_a_verb_in_the_past() -> None:
    found = {event for name in files(under="src/warren/", suffix=".py") for event in events(read(name))}

    assert len(found) > 20
    verbs = {event: event.partition(".")[2] for event in found}
    assert [event for event, verb in verbs.items() if verb.startswith("un") or not PAST.fullmatch(verb)] == []
