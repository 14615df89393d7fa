"""How a keeper is started, and what the control groups of its data folder are called."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from unit.local.forked import needs_root
from warren.domain.errors import EngineUnavailable
from warren.engines.local.spawn import group_name, run_module

if TYPE_CHECKING:
    from pathlib import Path


@needs_root
def test_two_data_folders_with_one_inode_number_on_two_disks_have_groups_of_their_own(tmp_path: Path) -> None:
    folders = []
    try:
        for name in ("first", "second"):
            (tmp_path / name).mkdir()
            subprocess.run(["mount", "-t", "tmpfs", "none", str(tmp_path / name)], check=True)
            (tmp_path / name / "local").mkdir()
            folders.append(str(tmp_path / name / "local"))
        inodes = {os.stat(folder).st_ino for folder in folders}
        names = {group_name(folder) for folder in folders}
    finally:
        for folder in folders:
            subprocess.run(["umount", os.path.dirname(folder)], check=True)

    assert (len(inodes), len(names)) == (1, 2)


_STUCK = """
import fcntl, os, sys
lock = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
fcntl.lockf(lock, fcntl.LOCK_EX)
print(flush=True)
sys.stdin.read()
"""


def test_a_keeper_that_does_not_get_ready_in_time_is_ended_and_not_waited_for(tmp_path: Path) -> None:
    command = [sys.executable, "-c", _STUCK, str(tmp_path / "keeper.sock.lock")]
    with (
        open(tmp_path / "log", "a+b") as log,
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as stuck,
    ):
        assert stuck.stdout is not None
        stuck.stdout.readline()
        config = {"optional_layers": [], "debug": False}
        with pytest.raises(EngineUnavailable, match="did not start"):
            run_module("warren.engines.local.keeper.main", str(tmp_path), config, log, timeout_s=3)
        still_stuck = stuck.poll() is None
        stuck.communicate()

    assert still_stuck
