"""What a terminal showed before, made fit to be shown again."""

from __future__ import annotations

import re

_LOOK_FOR_LINE = 4096
_END = rb"(?:\x07|\x1b\\)"
_QUESTIONS = re.compile(
    rb"\x05|\x1bZ"
    rb"|\x1b\[[?>=]?[0-9;]{0,32}c"  # What are you?
    rb"|\x1b\[\??[0-9;]{0,32}n"  # How are you, and where is the cursor?
    rb"|\x1b\[\??[0-9;]{0,32}\$p"  # Which modes are set?
    rb"|\x1b\[>[0-9]{0,4}q|\x1b\[\?u|\x1b\[[01]?x"
    rb"|\x1b\[(?:1[13-9]|2[01])(?:;[0-9]{0,8}){0,2}t"  # How large is the window, and what is its title?
    rb"|\x1b\](?:4|5|1[0-9]|52);(?:[^\x07\x1b]{0,64};)?\?"
    + _END  # Which colours, and what was copied?
    + rb"|\x1bP[$+]q[^\x07\x1b]{0,1024}"
    + _END
)
"""Sequences that a terminal answers, as if typed."""


def build_replay(shown: bytes, *, is_cut: bool) -> bytes:
    """Return what to show to somebody who joins: from the beginning of a line where the beginning is lost.

    WHY without questions: the terminal that is shown them again answers again, and the program, which did not ask now,
    takes the answer for keys.
    """
    if is_cut:
        shown = shown[shown.find(b"\n", 0, _LOOK_FOR_LINE) + 1 :]
    return _QUESTIONS.sub(b"", shown)
