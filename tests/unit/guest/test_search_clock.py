"""A pattern that would run for ever ends at the clock, and says that it is not complete."""

from __future__ import annotations

import json
import os
import signal
from typing import TYPE_CHECKING

import pytest

from warren.guest.files import search as module
from warren.guest.files.paths import PLACE, Workspace
from warren.guest.files.tree import Walk
from warren.guest.wire.parameters import Refused

if TYPE_CHECKING:
    from pathlib import Path


def test_a_catastrophic_pattern_ends_at_the_clock(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("first match aaa\n" + "a" * 64 + "!\n")
    fd = os.open(tmp_path, PLACE)
    before = signal.getsignal(signal.SIGALRM)
    try:
        body, payload = module.search(Walk(Workspace(fd, str(tmp_path)), "."), None, None, r"(a+)+$", 10, seconds=1.5)
    finally:
        signal.signal(signal.SIGALRM, before)
        os.close(fd)

    assert body == {"complete": False}
    assert [match["line"] for match in json.loads(payload)] == [1]


@pytest.mark.parametrize("regex", ["(", "\\", "a{99999999999}", "(?<=a+)b", "[z-a]"])
def test_a_pattern_that_is_none_is_refused(regex: str) -> None:
    with pytest.raises(Refused, match="regular expression"):
        module.build_test(None, regex)
