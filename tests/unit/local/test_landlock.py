"""Landlock, put on in a forked child."""

from __future__ import annotations

import errno
import os
import pty
import subprocess
from typing import TYPE_CHECKING

import pytest

from unit.local.forked import errno_of, run_in_child
from warren.engines.local.linux import landlock

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.skipif(landlock.abi() < landlock.MINIMUM_ABI, reason="this kernel has no Landlock ABI 2")


def test_writing_works_below_the_named_paths_only(tmp_path: Path) -> None:
    inside, outside = tmp_path / "inside", tmp_path / "outside"
    inside.mkdir()
    outside.mkdir()
    (outside / "file").write_text("kept")

    def attempt() -> dict[str, int]:
        landlock.restrict([str(inside)])
        return {
            "make inside": errno_of((inside / "file").write_text, "x"),
            "make outside": errno_of((outside / "new").write_text, "x"),
            "overwrite outside": errno_of(os.open, outside / "file", os.O_WRONLY),
            "truncate outside": errno_of(os.truncate, outside / "file", 0),
            "remove outside": errno_of(os.unlink, outside / "file"),
            "read outside": errno_of((outside / "file").read_text),
            "list outside": errno_of(os.listdir, outside),
            "take out": errno_of(os.rename, inside / "file", outside / "file2"),
        }

    assert run_in_child(attempt) == {
        "make inside": 0,
        "make outside": errno.EACCES,
        "overwrite outside": errno.EACCES,
        "truncate outside": errno.EACCES,
        "remove outside": errno.EACCES,
        "read outside": 0,
        "list outside": 0,
        "take out": errno.EACCES,
    }
    assert (outside / "file").read_text() == "kept"


def test_a_file_moves_from_one_folder_to_another_inside(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    (tmp_path / "one" / "file").write_text("x")

    def attempt() -> None:
        landlock.restrict([str(tmp_path)])
        os.rename(tmp_path / "one" / "file", tmp_path / "two" / "file")
        os.link(tmp_path / "two" / "file", tmp_path / "one" / "again")

    run_in_child(attempt)

    assert (tmp_path / "two" / "file").read_text() == "x"
    assert (tmp_path / "one" / "again").read_text() == "x"


def test_devices_programs_and_terminals_still_work(tmp_path: Path) -> None:
    def attempt() -> list[object]:
        landlock.restrict([str(tmp_path), "/dev", "/proc"])
        master, slave = pty.openpty()
        width = os.get_terminal_size(slave).columns
        os.close(master)
        os.close(slave)
        done = subprocess.run(["/bin/sh", "-c", "echo gone > /dev/null && echo ran"], capture_output=True, check=True)
        return [width, done.stdout.decode()]

    assert run_in_child(attempt) == [0, "ran\n"]


def test_one_file_can_be_named_writable(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).touch()

    def attempt() -> list[int]:
        landlock.restrict([str(tmp_path / "one")])
        return [errno_of(os.open, tmp_path / name, os.O_WRONLY) for name in ("one", "two")]

    assert run_in_child(attempt) == [0, errno.EACCES]


def test_no_device_can_be_made_anywhere(tmp_path: Path) -> None:
    def attempt() -> int:
        landlock.restrict([str(tmp_path)])
        return errno_of(os.mknod, tmp_path / "null", 0o020666, os.makedev(1, 3))

    assert run_in_child(attempt) in {errno.EACCES, errno.EPERM}


def test_a_path_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    def attempt() -> int:
        return errno_of(landlock.restrict, [str(tmp_path / "absent")])

    assert run_in_child(attempt) == errno.ENOENT
