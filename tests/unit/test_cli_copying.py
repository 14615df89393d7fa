"""A path that a sandbox names never leads out of the folder that files are copied to."""

from __future__ import annotations

import os

import pytest

from warren.cli.copying import check_sources, place
from warren.errors import InvalidRequest


@pytest.mark.parametrize("path", ["../out", "/etc/passwd", "a/../../b", "a//b", "", "./a", "a/.", "a\0b", ".."])
def test_a_path_that_leads_out_is_refused(path: str) -> None:
    with pytest.raises(InvalidRequest):
        place("results", path)


@pytest.mark.parametrize("path", ["a", "a/b/c.txt", "..hidden", "a..b/c", "~", "-rf"])
def test_an_ordinary_path_stays_below(path: str) -> None:
    assert place("results", path) == os.path.join("results", path)


def test_a_file_that_is_not_there_is_named() -> None:
    with pytest.raises(InvalidRequest, match="nowhere"):
        check_sources([("nowhere", "x")])
