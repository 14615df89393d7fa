"""What a data folder's control groups are called: nobody else's, on any disk."""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING

from unit.local.forked import needs_root
from warren.engines.local.spawn import group_name

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
