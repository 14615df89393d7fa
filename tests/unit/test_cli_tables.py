"""What tables and sentences of the command line make of foreign text."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from warren.cli.errors import explain
from warren.cli.terminal.tables import harmless, print_json, print_table, render_json
from warren.domain.errors import NotFound

if TYPE_CHECKING:
    import pytest

HOSTILE = "\x1bc\x1b]8;;http://evil\x1b\\x\x9b31m\x9d0;title\x9c\x07\r\b\u202e"


def test_nothing_that_a_terminal_obeys_is_in_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(None, ("label",), [(HOSTILE,), (f"{HOSTILE}\x1b[32myes\x1b[0m",)])

    assert "\\x1bc" in (shown := capsys.readouterr().out)
    assert all(each.isprintable() for each in shown.replace("\n", ""))


def test_colours_of_ours_are_colours(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(None, ("",), [("\x1b[32myes\x1b[0m",)])

    assert capsys.readouterr().out.strip() == "yes"


def test_json_says_the_same_and_a_terminal_obeys_nothing_of_it(capsys: pytest.CaptureFixture[str]) -> None:
    print_json({"label": HOSTILE, "name": "naïve"})

    shown = capsys.readouterr().out
    assert json.loads(shown) == {"label": HOSTILE, "name": "naïve"}
    assert "naïve" in shown
    assert render_json(HOSTILE).isprintable()
    assert all(each.isprintable() for each in shown.replace("\n", ""))


def test_nor_is_it_in_the_sentence_of_a_failure(capsys: pytest.CaptureFixture[str]) -> None:
    explain(NotFound(f"there is no {HOSTILE}"))
    explain(FileExistsError(17, "File exists", HOSTILE))

    assert (
        capsys.readouterr().err
        == f"warren: there is no {harmless(HOSTILE)}\nwarren: {harmless(HOSTILE)}: File exists\n"
    )


def test_in_a_pipe_a_row_is_a_line_however_long_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    print_table("title", ("name", "detail"), [("a", "x" * 300), ("long", "\x1b[31mno\x1b[0m")])

    assert capsys.readouterr().out == f"title\nname  detail\na     {'x' * 300}\nlong  no\n"
