"""A path that a sandbox names never leads out of the folder that files are copied to."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import anyio
import pytest

from warren.cli.execution.copying import Room, check, check_copy, place, write_whole
from warren.domain.errors import InvalidRequest

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path


@pytest.mark.parametrize("path", ["../out", "/etc/passwd", "a/../../b", "a//b", "", "./a", "a/.", "a\0b", ".."])
def test_a_path_that_leads_out_is_refused(path: str) -> None:
    with pytest.raises(InvalidRequest):
        place("results", path)


@pytest.mark.parametrize("path", ["a", "a/b/c.txt", "..hidden", "a..b/c", "~", "-rf"])
def test_an_ordinary_path_stays_below(path: str) -> None:
    assert place("results", path) == os.path.join("results", path)


def test_a_file_that_is_not_there_is_named() -> None:
    with pytest.raises(InvalidRequest, match="nowhere"):
        check([("nowhere", "x")], None)


@pytest.mark.parametrize("path", ["warren.toml", "deep/down/warren.toml"])
def test_no_program_in_a_sandbox_makes_settings(path: str) -> None:
    check_copy("results", "warren.toml.txt")
    with pytest.raises(InvalidRequest, match="holds settings of Warren"):
        check_copy("results", path)


def test_no_file_is_copied_through_a_link_that_lies_there(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "way").symlink_to(tmp_path / "there")

    check_copy(str(tmp_path / "out"), "way")
    with pytest.raises(InvalidRequest, match="is a link"):
        check_copy(str(tmp_path / "out"), "way/file")


def test_no_more_is_copied_than_a_workspace_can_hold() -> None:
    room = Room(10)
    room.check(10)
    room.take(4)
    room.check(6)
    with pytest.raises(InvalidRequest, match="sparse"):
        room.check(7)


@pytest.mark.parametrize("path", [".git/hooks/pre-commit", ".bashrc", "src/.env"])
def test_hidden_files_that_are_there_are_not_replaced(path: str, tmp_path: Path) -> None:
    check_copy(str(tmp_path), path)
    (tmp_path / path.partition("/")[0]).mkdir()

    with pytest.raises(InvalidRequest, match="is hidden"):
        check_copy(str(tmp_path), path)


def test_of_two_copies_to_one_place_the_last_is_there_and_whole(tmp_path: Path) -> None:
    target, beside, seen = tmp_path / "out", tmp_path / "out.partial", []
    beside.write_text("mine")

    async def slowly() -> AsyncIterator[bytes]:
        yield b"first, "
        # The other is copied while this one is under way.
        await write_whole(str(target), other(), Room(100))
        seen.append(target.read_text())
        yield b"and last"

    async def other() -> AsyncIterator[bytes]:
        yield b"another"

    anyio.run(write_whole, str(target), slowly(), Room(100))

    assert seen == ["another"]
    assert target.read_text() == "first, and last"
    assert beside.read_text() == "mine"
    assert sorted(os.listdir(tmp_path)) == ["out", "out.partial"]
