"""The page about the command line says what the commands say."""

from __future__ import annotations

import os

import pytest

from warren.cli.app import build_commands
from warren.cli.reference import render

_PAGE = os.path.join(os.path.dirname(__file__), "..", "..", "docs", "reference", "cli.md")


def test_the_reference_page_is_current() -> None:
    with open(_PAGE, encoding="utf-8") as page:
        text = page.read()

    assert text == render(), "run: python -m warren.cli.reference > docs/reference/cli.md"


def _commands() -> list[tuple[str, object]]:
    root = build_commands()
    found: list[tuple[str, object]] = []
    pending = [("warren", root)]
    while pending:
        path, command = pending.pop()
        children = getattr(command, "commands", {})
        found += [] if children else [(path, command)]
        pending += [(f"{path} {name}", child) for name, child in children.items()]
    return sorted(found, key=lambda pair: pair[0])


@pytest.mark.parametrize(("path", "command"), _commands(), ids=lambda value: value if isinstance(value, str) else "")
def test_every_command_is_explained_and_has_an_example(path: str, command: object) -> None:
    assert getattr(command, "help", None)
    assert path in (getattr(command, "epilog", None) or "")
    for parameter in getattr(command, "params", ()):
        assert parameter.help, f"{path} {parameter.name} has no help"
        assert parameter.metavar or getattr(parameter, "is_flag", False), f"{path} {parameter.name} has Python's type"
