"""The replay of a terminal for a new viewer."""

from __future__ import annotations

import pytest

from warren.guest.terminals.terminal import build_replay

QUESTIONS = (
    b"\x1b[c", b"\x1b[0c", b"\x1b[>c", b"\x1b[>0c", b"\x1b[=c", b"\x1b[6n", b"\x1b[?6n", b"\x1b[5n", b"\x1bZ", b"\x05",
    b"\x1b[?2026$p", b"\x1b[>q", b"\x1b[?u", b"\x1b[18t", b"\x1b[14;2t", b"\x1b[21t", b"\x1b[x",
    b"\x1b]10;?\x07", b"\x1b]11;?\x1b\\", b"\x1b]4;1;?\x07", b"\x1b]52;c;?\x07",
    b"\x1bP+q544e\x1b\\", b"\x1bP$qm\x1b\\",
)  # fmt: skip
PICTURE = (
    b"\x1b[2J\x1b[1;31mred\x1b[0m\x1b[10;20Hthere\x1b[?1049h\x1b[?25l"
    b"\x1b]0;what now?\x07\x1b[8;40;120t\x1b[4 q\r\n\xc3\xa9"
)


@pytest.mark.parametrize("question", QUESTIONS)
def test_a_terminal_is_not_asked_again(question: bytes) -> None:
    assert build_replay(b"before" + question + b"after", is_cut=False) == b"beforeafter"


def test_everything_else_is_shown_as_it_was() -> None:
    assert build_replay(PICTURE, is_cut=False) == PICTURE


def test_where_the_beginning_is_lost_it_begins_with_a_line() -> None:
    assert build_replay(b";31mhalf\r\nwhole\r\n", is_cut=True) == b"whole\r\n"
    assert build_replay(b"no line at all", is_cut=True) == b"no line at all"
    assert build_replay(b"first\r\n", is_cut=False) == b"first\r\n"


@pytest.mark.parametrize("piece", [b"\x1b[", b"\x1bP+q", b"\x1b]52;", b"\x1b[0;0;0;", b"\x1b]4;;;;"])
def test_half_questions_cost_no_time(piece: bytes) -> None:
    """Begun anew at each of them it would take hours, and the test its time limit."""
    build_replay(piece * ((256 << 10) // len(piece)), is_cut=True)
